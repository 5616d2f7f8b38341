"""The loss jumps: run the same steps again at a tenth of the learning rate, and see whether it jumps again.

    python loss_spike.py data
    python loss_spike.py rate
"""
import copy
import statistics
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
BAD, BEFORE, LAST = 150, 145, 158  # the step that goes wrong, the checkpoint before it, the last step
clean = (torch.randint(64, (LAST, 16, 1)) + torch.arange(32)) % 64  # rows that count up
batches = torch.where(torch.rand(LAST, 16, 32) < 0.1, torch.randint(64, (LAST, 16, 32)), clean)  # and some errors
rates = [3e-3] * LAST
if sys.argv[1] == "data":
    batches[BAD] = torch.randint(64, (16, 32))  # as a broken file would give
else:
    rates[BAD:] = [0.1] * (LAST - BAD)  # a mistake in the schedule


# --8<-- [start:test]
def train(model, optimizer, first, last, factor=1.0):
    """The loss of each step; the batches come in the same order in every run."""
    losses = {}
    for step in range(first, last):
        for group in optimizer.param_groups:
            group["lr"] = factor * rates[step]
        loss = model(input_ids=batches[step], labels=batches[step]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.item()
    return losses


def jumps(losses, usual):
    """The steps whose loss is more than twice the usual one."""
    return [step for step, loss in losses.items() if loss > 2 * usual]
# --8<-- [end:test]


config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=64)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters())
usual = statistics.median(list(train(model, optimizer, 0, BEFORE).values())[-10:])
checkpoint = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
print("jumps at steps", jumps(train(model, optimizer, BEFORE, LAST), usual))

model.load_state_dict(checkpoint[0])
optimizer.load_state_dict(checkpoint[1])
again = jumps(train(model, optimizer, BEFORE, LAST, factor=0.1), usual)
print("at a tenth of the rate at steps", again)
print("look at the data of these steps" if again else "lower the learning rate, or warm up longer")
