"""Writes a picture of where the memory of a step went, which a browser opens."""
import torch
from torch.cuda._memory_viz import profile_plot
from transformers import AutoModelForCausalLM, LlamaConfig

gpu = torch.cuda.is_available()
device = "cuda" if gpu else "cpu"
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(0, 1000, (4, 128), device=device)


def step():
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


step()  # from the second step on, the optimizer's state is there
# --8<-- [start:snapshot]
if gpu:
    torch.cuda.memory._record_memory_history()
    step()
    torch.cuda.memory._dump_snapshot("memory.pickle")  # drop it onto https://docs.pytorch.org/memory_viz
    torch.cuda.memory._record_memory_history(enabled=None)
else:
    with torch.profiler.profile(profile_memory=True, with_stack=True, record_shapes=True) as profile:
        step()
    with open("memory.html", "w") as file:  # open it in a browser
        file.write(profile_plot(profile))
# --8<-- [end:snapshot]
