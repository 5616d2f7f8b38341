"""On how many GPUs does it fit? Counts what one rank of a tensor-parallel group holds, without weights or GPUs."""

import fnmatch

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

# With the Hub: config = AutoConfig.from_pretrained("meta-llama/Llama-3.1-70B")
config = LlamaConfig(vocab_size=128256, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                     num_attention_heads=64, num_key_value_heads=8, tie_word_embeddings=False)  # fmt: skip

# --8<-- [start:count]
GPU = 47.5 * 2**30  # bytes; of yours: torch.cuda.get_device_properties(0).total_memory
RESERVE = 2 * 2**30  # prompt, CUDA context, rounding
TOKENS = 8192  # of all sequences together
SPLIT = ("colwise", "rowwise", "packed_colwise", "embedding_rowwise", "colwise_gather_output")

with torch.device("meta"):  # shapes, no data
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def is_split(name):
    """Whether transformers divides this weight: its plan names modules, or experts' tensors themselves."""
    names = name, name.rpartition(".")[0]
    return any(style in SPLIT and fnmatch.filter(names, rule) for rule, style in model.tp_plan.items())


sizes = {name: 2 * weight.numel() for name, weight in model.named_parameters()}
divided = sum(size for name, size in sizes.items() if is_split(name))
whole = sum(sizes.values()) - divided
head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
cache = 2 * config.num_hidden_layers * config.num_key_value_heads * head * 2 * TOKENS  # not for MLA or sliding layers
for ranks in (1, 2, 4, 8):
    if config.num_key_value_heads % ranks == 0:
        held = whole + (divided + cache) / ranks
        print(f"{ranks} GPUs: {held / 2**30:.1f} GiB on each, {'fits' if held + RESERVE <= GPU else 'does not fit'}")
# --8<-- [end:count]
