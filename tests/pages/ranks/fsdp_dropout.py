"""Gradients on two ranks under FSDP2, by how activations are checkpointed: how far from those without checkpointing.

`fsdp_config` is what Accelerate does with `"activation_checkpointing": True` there; `argument` what Trainer does with the
argument of that name.
"""

from types import SimpleNamespace

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

dist.init_process_group("gloo")
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["GPT2Block"]
)
accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin))


def gradients(way, dropout):
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=2, resid_pdrop=dropout, embd_pdrop=0.0, attn_pdrop=0.0
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).train()
    if way == "fsdp_config":
        fsdp2_apply_ac(accelerator, model)
    if way == "argument":
        model.activation_checkpointing_enable()
    for layer in model.transformer.h:
        fully_shard(layer)
    fully_shard(model)
    torch.manual_seed(dist.get_rank())
    ids = torch.arange(16).unsqueeze(0) + dist.get_rank()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item(), torch.cat([parameter.grad.full_tensor().flatten() for parameter in model.parameters()])


for dropout in (0.1, 0.0):
    loss, plain = gradients("", dropout)
    for way in ("fsdp_config", "argument"):
        other, found = gradients(way, dropout)
        if dist.get_rank() == 0:
            print(dropout, way, abs(other - loss), ((found - plain).abs().max() / plain.abs().max()).item(), flush=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
