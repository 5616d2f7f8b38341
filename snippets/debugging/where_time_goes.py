"""Which part of a step takes the time? Data, forward, backward or optimizer: the first five minutes with a slow run."""
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


# --8<-- [start:parts]
class Stopwatch:
    """Seconds of each part of a step. Waits for the device: else a part seems to end when it is queued."""

    def __init__(self):
        self.seconds = {}

    def start(self):
        self.since = self.now()

    def now(self):
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return time.perf_counter()

    def lap(self, part):
        self.seconds[part] = self.seconds.get(part, 0) + self.now() - self.since
        self.since = self.now()

    def shares(self):
        return {part: seconds / sum(self.seconds.values()) for part, seconds in self.seconds.items()}


def train(model, optimizer, loader, warm_up=2):
    watch = Stopwatch()
    watch.start()
    for step, ids in enumerate(loader):
        watch.lap("data")
        loss = model(input_ids=ids.to(device), labels=ids.to(device)).loss
        watch.lap("forward")
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        optimizer.zero_grad()
        watch.lap("optimizer")
        if step + 1 == warm_up:  # workers start, kernels are chosen, the optimizer makes its state
            watch.seconds.clear()
    return watch.shares()
# --8<-- [end:parts]


class Rows(torch.utils.data.Dataset):  # put your own dataset here
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 96

    def __getitem__(self, row):
        time.sleep(self.seconds)  # a slow disk, decoding, or tokenizing in the loop
        return torch.arange(64) + row


if __name__ == "__main__":
    torch.set_num_threads(1)
    config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=256)
    model = LlamaForCausalLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for name, seconds in (("slow rows", 0.02), ("rows in memory", 0)):
        shares = train(model, optimizer, torch.utils.data.DataLoader(Rows(seconds), batch_size=8))
        print(f"{name}: " + ", ".join(f"{part} {share:.0%}" for part, share in shares.items()))
