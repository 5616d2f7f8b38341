"""`device-side assert triggered` on a GPU is an index out of range. The CPU says so at the line that does it."""
import torch
from transformers import BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=100)
model = BertForSequenceClassification(BertConfig(**SMALL))
roberta = RobertaForSequenceClassification(RobertaConfig(**SMALL, max_position_embeddings=514))


# --8<-- [start:test]
def out_of_range(model, batch):
    """The three indices of a batch that a GPU asserts, where they pass their limits."""
    config, ids, labels = model.config, batch["input_ids"], batch["labels"]
    pad = getattr(getattr(model.base_model, "embeddings", None), "padding_idx", None)
    # RoBERTa and its family number the tokens that are no padding, from padding_idx + 1: of 514 positions 512 remain.
    position = ids.shape[1] - 1 if pad is None else (ids != pad).sum(1).max().item() + pad
    found = {"token": (ids, model.get_input_embeddings().num_embeddings - 1),
             "position": (torch.tensor([position]), config.max_position_embeddings - 1),
             "label": (labels[labels != -100], config.num_labels - 1)}  # the loss leaves -100 out, and no other negative label
    over = {name: f"{index.max()}, and the last is {last}" for name, (index, last) in found.items() if (index > last).any()}
    return over | {name: f"{index.min()}, and the first is 0" for name, (index, _) in found.items() if (index < 0).any()}
# --8<-- [end:test]


def run(model, batch):
    try:
        model.cpu()(**batch)
        return "runs"
    except (IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    good = {"input_ids": torch.arange(8)[None], "labels": torch.tensor([1])}
    for name, tried, batch in [
        ("a token that the tokenizer got later", model, good | {"input_ids": torch.full((1, 8), 100)}),
        ("a text that is too long", model, good | {"input_ids": torch.ones(1, 600, dtype=torch.long)}),
        ("513 tokens for the 514 positions of a RoBERTa", roberta, good | {"input_ids": torch.full((1, 513), 2)}),
        ("labels from 1 in place of 0", model, good | {"labels": torch.tensor([2])}),
        ("a label of -1, as in test splits of GLUE", model, good | {"labels": torch.tensor([-1])}),
        ("none", model, good),
        ("none, for a RoBERTa", roberta, good | {"input_ids": torch.full((1, 512), 2)}),
    ]:
        print(f"{name}: {run(tried, batch)} {out_of_range(tried, batch) or ''}")
