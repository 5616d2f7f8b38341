"""What is a unit of FSDP2 in a model with adapters: by Accelerate's own policy, and by peft's, which `Trainer` sets.

Prints for each: units that hold a decoder layer, and the weights that a rank has gathered after the forward pass.
"""

from types import SimpleNamespace

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac, fsdp2_prepare_model
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed.fsdp import update_fsdp_plugin_peft

from dryrun.tracing.collectives import RankTracker

dist.init_process_group("gloo")
config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=2, use_cache=False
)


def prepared(by_peft, checkpointing=False):
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"]
    )
    accelerator = SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        parallelism_config=SimpleNamespace(fsdp_dim_names=("shard",)),
        torch_device_mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("shard",)),
        is_main_process=dist.get_rank() == 0,
        mixed_precision="no",
        device=torch.device("cpu"),
    )
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(target_modules="all-linear"))
    if by_peft:
        update_fsdp_plugin_peft(model, accelerator)
    if checkpointing:
        model = fsdp2_apply_ac(accelerator, model)
    return fsdp2_prepare_model(accelerator, model)


for by_peft in (False, True):
    model = prepared(by_peft)
    layers = sum(isinstance(layer, FSDPModule) for layer in model.base_model.model.model.layers)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad])
    ids = torch.zeros(1, 8, dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()
    with RankTracker(model, optimizer) as tracker:
        loss = model(input_ids=ids, labels=ids).loss
        gathered = tracker.snapshot().get("gathered weights", 0)
        loss.backward()
    whole = sum(parameter.nbytes for parameter in model.parameters())
    if dist.get_rank() == 0:
        print("peft" if by_peft else "accelerate", layers, "layers,", f"{gathered / whole:.2f}", "of all weights", flush=True)
try:
    prepared(True, checkpointing=True)
except TypeError as error:
    if dist.get_rank() == 0:
        print(f"with checkpointing: {error}", flush=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
