"""Is a step bound by its calls or by its arithmetic? Double the batch and look at the time of a step."""
import time

import torch
from transformers import BertConfig, BertModel

device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


# --8<-- [start:test]
def seconds(step, repeats=5):
    """The fastest of some calls, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        step()
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def growth(make_step, batch):
    """Time of a step at twice the batch over that at the batch: near 1, calls are the limit; near 2, arithmetic is."""
    return seconds(make_step(2 * batch)) / seconds(make_step(batch))
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
