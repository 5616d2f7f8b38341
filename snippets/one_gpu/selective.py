"""Selective checkpointing: keeps what is expensive to compute, and computes the rest again. Counts FLOPs."""
import functools

import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).train()
model.config.use_cache = False
ids = torch.randint(0, config.vocab_size, (2, 128))


def step():
    """(FLOPs of forward and backward pass, loss)"""
    with FlopCounterMode(display=False) as counter:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
    return counter.get_total_flops(), loss.item()


plain, loss = step()
model.activation_checkpointing_enable()
full, same = step()
# --8<-- [start:selective]
aten = torch.ops.aten
keep = [aten.mm.default, aten.addmm.default]  # layers without a bias, and with one
keep += [  # whichever kernel SDPA takes: cuDNN on an H100, the last one on a CPU
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
]
contexts = functools.partial(create_selective_checkpoint_contexts, keep)
model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": contexts})
# --8<-- [end:selective]
selective, alike = step()
assert abs(loss - same) < 1e-5 and abs(loss - alike) < 1e-5
print(f"FLOPs against no checkpointing: full {full / plain:.2f}, selective {selective / plain:.2f}")
