"""Trains a transformers model on a mesh of TPU chips, through torchax. A CPU stands for 8 chips.

python train.py data      # every chip holds all weights
python train.py fsdp      # every chip holds a part of each weight, and gathers it to compute
python train.py tensor    # every chip computes a part of each layer
"""
import functools
import os
import sys

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}"  # of a CPU only

# --8<-- [start:mesh]
import jax
import optax
import torch
import torchax
from collectives import collectives
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from task import RATE, batches, llama
from torchax.interop import call_jax, jax_view
from transformers import AttentionInterface

layout = sys.argv[1]
if "--hosts" in sys.argv:
    jax.distributed.initialize()  # on a TPU slice it finds the other hosts by itself; before anything asks for devices
chips = len(jax.devices())
shape = {"data": (chips, 1), "fsdp": (chips, 1), "tensor": (1, chips)}[layout]
mesh = jax.make_mesh(shape, ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))


def place(name, tensor):
    """Which axis of the mesh divides which dimension of a weight."""
    if layout == "fsdp" and tensor.ndim == 2:
        return P("data", None)
    if layout == "tensor" and any(part in name for part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")):
        return P("model", None)  # PyTorch stores (out, in): these are divided by their outputs
    if layout == "tensor" and any(part in name for part in ("o_proj", "down_proj")):
        return P(None, "model")  # and these by their inputs, so that one all-reduce adds up the parts
    return P()
# --8<-- [end:mesh]


# --8<-- [start:attention]
def jax_attention(module, query, key, value, attention_mask, scaling=None, sliding_window=None, softcap=None, **_):
    """JAX's own attention, causal. PyTorch's folds batch and heads into one dimension, which XLA must gather."""
    if softcap:
        raise ValueError("the scores of this model are capped, and dot_product_attention caps none")
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))  # to (batch, length, heads, size)
    window = (sliding_window - 1, 0) if sliding_window else None
    how = {"is_causal": True, "scale": scaling, "local_window_size": window}
    return call_jax(jax.nn.dot_product_attention, query, key, value, **how), None


AttentionInterface.register("jax", jax_attention)
# --8<-- [end:attention]


# --8<-- [start:weights]
model = llama()
model.set_attn_implementation("jax")
weights = {
    name: jax.device_put(tensor.detach().numpy(), NamedSharding(mesh, place(name, tensor)))
    for name, tensor in model.named_parameters()
}
buffers = {name: jax.device_put(tensor.numpy(), NamedSharding(mesh, P())) for name, tensor in model.named_buffers()}
torchax.enable_globally()  # from here on, PyTorch computes with JAX arrays
# --8<-- [end:weights]


# --8<-- [start:step]
def loss_of(weights, ids):
    tensors, ids = torchax.interop.torch_view((weights | buffers, ids))
    output = torch.func.functional_call(model, tensors, (), {"input_ids": ids, "labels": ids})
    return jax_view(output.loss)


optimizer = optax.adamw(RATE, eps=1e-8, weight_decay=0.01)
state = optimizer.init(weights)  # zeros placed as the weights are


@functools.partial(jax.jit, donate_argnums=(0, 1))  # the old weights and state make room for the new
def step(weights, state, ids):
    loss, gradients = jax.value_and_grad(loss_of)(weights, ids)
    updates, state = optimizer.update(gradients, state, weights)
    return optax.apply_updates(weights, updates), state, loss
# --8<-- [end:step]


# --8<-- [start:loop]
rows = NamedSharding(mesh, P("data", None))
for number, ids in enumerate(batches()):
    ids = jax.device_put(ids, rows)  # returns at once
    if number == 0:
        compiled = step.lower(weights, state, ids).compile()
    weights, state, loss = compiled(weights, state, ids)
    print(f"loss {loss:.6f}")  # waits for the chips: in a long run read every hundredth
# --8<-- [end:loop]
print("collectives", collectives(compiled.as_text()))
