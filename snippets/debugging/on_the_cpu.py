"""`device-side assert triggered` on a GPU is an index out of range. The CPU says so at the line that does it."""
import torch
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=100)
model = BertForSequenceClassification(config)


# --8<-- [start:test]
def out_of_range(model, batch):
    """The three indices of a batch that a GPU asserts, each against its limit."""
    config, ids, labels = model.config, batch["input_ids"], batch["labels"]
    limits = {"token": (ids.max().item(), model.get_input_embeddings().num_embeddings - 1),
              "position": (ids.shape[1] - 1, config.max_position_embeddings - 1),
              "label": (labels.max().item(), config.num_labels - 1)}  # fmt: skip
    return {name: f"{index}, and the last is {last}" for name, (index, last) in limits.items() if index > last}
# --8<-- [end:test]


def run(batch):
    try:
        model.cpu()(**batch)
        return "runs"
    except (IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    good = {"input_ids": torch.arange(8)[None], "labels": torch.tensor([1])}
    for name, batch in {
        "a token that the tokenizer got later": good | {"input_ids": torch.full((1, 8), 100)},
        "a text that is too long": good | {"input_ids": torch.ones(1, 600, dtype=torch.long)},
        "labels from 1 in place of 0": good | {"labels": torch.tensor([2])},
        "none": good,
    }.items():
        print(f"{name}: {run(batch)} {out_of_range(model, batch) or ''}")
