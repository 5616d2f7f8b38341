"""How many tensors as large as a layer's input are alive at the end of a backward pass: kept_inputs.py fsdp1|fsdp2 reentrant|not frozen|trained

Layers with weights that are frozen or trained and adapters, sharded as peft has it wrapped: under FSDP1 the adapters are units of their own."""

import functools
import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy
from torch.utils.checkpoint import checkpoint

WIDTH, TOKENS, LAYERS = 64, 512, 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(sys.argv[3] == "trained")
        self.a, self.b = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)

    def forward(self, x):
        return x + self.base(x).relu() + self.b(self.a(x))


def alive():
    """How many storages of the size of an input there are, gradients among them."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    both = [each for tensor in tensors for each in (tensor, tensor.grad if tensor.is_leaf else None) if each is not None]
    return len({each.untyped_storage().data_ptr() for each in both if each.numel() == TOKENS * WIDTH})


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.seen = []

    def forward(self, x):
        x.register_hook(lambda gradient: self.seen.append(alive()))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=sys.argv[2] == "reentrant")
        return x


def is_trained_leaf(module):
    return not list(module.children()) and any(weight.requires_grad for weight in module.parameters())


dist.init_process_group("gloo")
model = Model()
if sys.argv[1] == "fsdp1":
    adapters = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_trained_leaf)
    layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    policy = functools.partial(_or_policy, policies=[adapters, layers])
    whole = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
else:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    whole = fully_shard(model, mesh=mesh)
whole(torch.zeros(TOKENS, WIDTH, requires_grad=True)).sum().backward()
print(model.seen[0])
dist.destroy_process_group()
