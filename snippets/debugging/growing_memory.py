"""Memory that grows with every step, until the GPU is full: a list that keeps each step's graph alive."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config)
ids = torch.randint(0, 256, (4, 64))


# --8<-- [start:wrong]
def train_and_keep(step, losses):
    loss = model(input_ids=ids, labels=ids).loss
    losses.append(loss)  # a tensor with its graph: every activation of this step stays
    return losses
# --8<-- [end:wrong]


# --8<-- [start:right]
def train(step, losses):
    loss = model(input_ids=ids, labels=ids).loss
    losses.append(loss.item())  # a number; on a GPU, loss.detach() does not wait for the device
    return losses
# --8<-- [end:right]


# --8<-- [start:test]
class Held:
    """Bytes that graphs keep for their backward passes. On a GPU, print torch.cuda.memory_allocated() instead."""

    bytes = 0

    def __init__(self, tensor):
        self.tensor, self.size = tensor.detach(), tensor.numel() * tensor.element_size()
        Held.bytes += self.size

    def __del__(self):
        Held.bytes -= self.size


def after_each_step(function, steps=4):
    losses, found = [], []
    with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
        for step in range(steps):
            function(step, losses)
            found.append(f"{Held.bytes / 2**20:.1f}")
    return found
# --8<-- [end:test]


if __name__ == "__main__":
    for function in (train_and_keep, train):
        print(f"{function.__name__}: graphs hold {', '.join(after_each_step(function))} MiB after each step")
