"""Profiles three steps of a training loop whose data are slow; prints the operators and writes trace.json."""
import time

import torch
from torch.profiler import profile, record_function, schedule
from transformers import BertConfig, BertForSequenceClassification

device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


CONFIG = BertConfig(hidden_size=256, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, row):
        time.sleep(0.05)  # a slow disk, decoding, or tokenizing in the loop
        return torch.arange(128) + row


# --8<-- [start:profile]
def train(model, optimizer, loader):
    steps = schedule(wait=1, warmup=1, active=3, repeat=1)  # the first steps allocate, and choose kernels
    batches = iter(loader)
    with profile(schedule=steps, record_shapes=True) as profiler:
        for _ in range(5):
            with record_function("data"):
                ids = next(batches).to(device)
            with record_function("forward"):
                loss = model(input_ids=ids, labels=torch.zeros(len(ids), dtype=torch.long, device=device)).loss
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace("trace.json")
    return profiler.key_averages()
# --8<-- [end:profile]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = BertForSequenceClassification(CONFIG).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    averages = train(model, optimizer, torch.utils.data.DataLoader(Rows(), batch_size=4))
    by = "self_device_time_total" if torch.accelerator.is_available() else "self_cpu_time_total"
    print(averages.table(sort_by=by, row_limit=6, max_name_column_width=30))
