"""Records every allocation of a training step: on a GPU by its allocator, on a CPU by the profiler, in the same format."""
import pickle

import torch
from transformers import LlamaConfig, LlamaForCausalLM

gpu = torch.cuda.is_available()
device = "cuda" if gpu else "cpu"
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
model = LlamaForCausalLM(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(0, 1000, (4, 128), device=device)


def step():
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


step()  # from the second step on, the optimizer's state is there
# --8<-- [start:record]
if gpu:
    torch.cuda.memory._record_memory_history(max_entries=100_000)  # without a limit it grows as long as the run
    step()
    torch.cuda.memory._dump_snapshot("memory.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)
else:
    with torch.profiler.profile(profile_memory=True, with_stack=True, record_shapes=True) as profiler:
        step()
    with open("memory.pickle", "wb") as file:
        pickle.dump(torch.cuda._memory_viz._profile_to_snapshot(profiler), file)
# --8<-- [end:record]
