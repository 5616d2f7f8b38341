"""Which share of a training step passes with waiting for the next batch?"""
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


# --8<-- [start:measure]
def waiting_share(loader, step):
    waited = total = 0.0
    asked = time.perf_counter()
    for number, batch in enumerate(loader):
        arrived = time.perf_counter()
        step(batch)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # else the step seems to end when it is queued
        done = time.perf_counter()
        if number > 0:  # the first batch waits for the workers to start
            waited, total = waited + arrived - asked, total + done - asked
        asked = done
    return waited / total
# --8<-- [end:measure]


class SlowRows(torch.utils.data.Dataset):  # put your own dataset here
    def __len__(self):
        return 64

    def __getitem__(self, row):
        time.sleep(0.01)  # a slow disk, or decoding
        return torch.arange(64) + row


config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
model = LlamaForCausalLM(config).to(device)


def step(ids):
    model(input_ids=ids.to(device), labels=ids.to(device)).loss.backward()


if __name__ == "__main__":
    for workers in (0, 4):
        loader = torch.utils.data.DataLoader(SlowRows(), batch_size=8, num_workers=workers)
        print(f"{workers} workers: {waiting_share(loader, step):.0%} of the time is waiting")
