"""Is a step bound by its calls or by its arithmetic? Double the batch and look at the time of a step."""
import time

import torch
from transformers import BertConfig, BertModel

device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


# --8<-- [start:test]
def seconds(step):
    begun = time.perf_counter()
    step()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter() - begun


def growth(make_step, batch, repeats=20):
    """Time of a step at twice the batch over that at the batch: near 1, calls are the limit; near 2, arithmetic is.

    Both run in turn, the first pair does not count, and the fastest of each does: other programs slow down both.
    """
    steps = make_step(batch), make_step(2 * batch)
    pairs = [[seconds(step) for step in steps] for _ in range(repeats + 1)]
    single, double = (min(times) for times in zip(*pairs[1:], strict=True))
    return double / single
# --8<-- [end:test]


def forward(config, length):
    model = BertModel(config).to(device).eval()

    def make_step(batch):
        ids = torch.randint(1000, 30000, (batch, length), device=device)

        @torch.no_grad()
        def step():
            model(input_ids=ids)

        return step

    return make_step


if __name__ == "__main__":
    torch.set_num_threads(1)
    tiny = BertConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=12, num_attention_heads=2)
    wide = BertConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=12)
    print(f"tiny layers: {growth(forward(tiny, length=8), batch=1):.1f}x the time for twice the batch")
    print(f"wide layers: {growth(forward(wide, length=128), batch=4):.1f}x the time for twice the batch")
