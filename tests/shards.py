"""A tiny model, sharded in the process of the test, and the messages that pages show: for the tests of the pages about sharding."""

import torch
from programs import shown_message
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, set_seed

TINY = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)
IDS = torch.arange(16).view(1, 16)


def message_of(guide, name):
    """(kind, words) of an error message as a page shows it."""
    kind, _, words = shown_message(guide, name).partition(": ")
    return kind, words


def raised(caught):
    return type(caught.value).__name__, str(caught.value)


def sharded(mesh, root=True):
    set_seed(0)
    model = AutoModelForCausalLM.from_config(TINY)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh) if root else model


def backward(model):
    loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return loss.item()
