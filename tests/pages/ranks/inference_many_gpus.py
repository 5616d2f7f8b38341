"""Brings about what docs/inference/many-gpus.md says of ranks of a split model: on two ranks, rank 0 prints one JSON line."""

import json
import warnings

import torch
import torch.distributed as dist
from torchao.quantization import Int8WeightOnlyConfig
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
    TorchAoConfig,
    set_seed,
)
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from dryrun.tracing.collectives import RankTracker

LAYERS, WIDTH, VOCABULARY = 3, 64, 500
SHAPE = dict(
    vocab_size=VOCABULARY, intermediate_size=128, num_hidden_layers=LAYERS, bos_token_id=None, eos_token_id=None,
    pad_token_id=0,
)
FOUR = LlamaConfig(hidden_size=WIDTH, num_attention_heads=4, num_key_value_heads=4, **SHAPE)
THREE = LlamaConfig(hidden_size=66, num_attention_heads=3, num_key_value_heads=3, **SHAPE)
IDS = torch.arange(1, 6)[None]
RIGHT = torch.tensor([[7, 8, 9, 0, 0], [1, 2, 3, 4, 5]])
LEFT = torch.tensor([[0, 0, 7, 8, 9], [1, 2, 3, 4, 5]])


def load(folder, ranks=2, **more):
    return AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=ranks), **more)


def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def generate(model, ids, **options):
    mask = (ids != 0).long()
    return model.generate(ids, attention_mask=mask, max_new_tokens=6, **options)[:, ids.shape[1] :].tolist()


def sampled(model, seed):
    set_seed(seed)
    return generate(model, IDS, do_sample=True)


def on_all(value):
    """What each rank has."""
    values = [None, None]
    dist.all_gather_object(values, value)
    return values


@torch.no_grad()
def one_token(model):
    """Collectives of a decoded token, and the KV heads that this rank keeps."""
    cache = model(IDS).past_key_values
    with RankTracker(model, torch.optim.SGD(model.parameters(), lr=1), {"input_ids": IDS}) as tracker:
        model(IDS[:, :1], past_key_values=cache)
    counts = {c.kind: [c.count, c.payload] for c in tracker.collectives.values()}
    return counts, cache.layers[0].keys.shape[1]


@torch.no_grad()
def in_bits(bits):
    """A split model that bitsandbytes quantizes, and its first forward pass."""
    how = {f"load_in_{bits}bit": True}
    return raised(lambda: load("four", quantization_config=BitsAndBytesConfig(**how), dtype=torch.float32)(IDS))


@torch.no_grad()
def int8_error():
    """How far the logits of a split int8 model of torchao are from the model's, as a part of the largest logit."""
    split = load("four", quantization_config=TorchAoConfig(Int8WeightOnlyConfig()), dtype=torch.float32)
    expected = alone(IDS).logits
    return float((split(IDS).logits - expected).abs().max() / expected.abs().max())


disable_progress_bar()
warnings.simplefilter("ignore")
dist.init_process_group("gloo")
set_seed(0)
if dist.get_rank() == 0:
    for folder, config in (("four", FOUR), ("three", THREE)):
        LlamaForCausalLM(config).save_pretrained(folder)
dist.barrier()
model, alone = load("four"), LlamaForCausalLM.from_pretrained("four")
collectives, heads = one_token(model)
found = {
    "collectives": collectives,
    "heads": heads,
    "same seed": on_all(sampled(model, 0)),
    "other seeds": on_all(sampled(model, dist.get_rank())),
    "left": [generate(model, LEFT, do_sample=False), generate(alone, LEFT, do_sample=False)],
    "right": generate(model, RIGHT, do_sample=False),
    "first alone": generate(alone, RIGHT[:1, :3], do_sample=False),
    "mesh": raised(lambda: load("four", ranks=4)),
    "device_map": raised(lambda: load("four", device_map="auto")),
    "bitsandbytes": [in_bits(4), in_bits(8)],
    "int8": int8_error(),
    "three heads": raised(lambda: load("three")(RIGHT[1:].repeat(2, 1))),
}
if dist.get_rank() == 0:
    print(json.dumps(found))
dist.barrier()
dist.destroy_process_group()
