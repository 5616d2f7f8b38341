"""Four mistakes that raise nothing: each made on purpose, found by its test, and mended."""
import torch
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
small = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=64,
             initializer_range=0.5)
encoder = BertForSequenceClassification(BertConfig(**small))
decoder = LlamaForCausalLM(LlamaConfig(**small, pad_token_id=0, bos_token_id=1, eos_token_id=2)).eval()
ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]])  # the second text is padded on the right
mask = (ids != 0).long()


# --8<-- [start:dropout]
def is_deterministic(model, batch):
    """The same batch twice. Dropout that is still on gives two answers."""
    with torch.no_grad():
        return torch.equal(model(**batch).logits, model(**batch).logits)
# --8<-- [end:dropout]


# --8<-- [start:padding]
def same_alone_and_in_a_batch(model, ids, mask, row, new_tokens=4):
    """What a text continues with, alone and beside a longer one."""
    alone = model.generate(ids[row][mask[row] == 1][None], max_new_tokens=new_tokens, do_sample=False)
    batch = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False)
    return torch.equal(alone[0, -new_tokens:], batch[row, -new_tokens:])
# --8<-- [end:padding]


# --8<-- [start:labels]
def padding_in_the_loss(labels, mask):
    """Labels that count although nothing stands there: it must be none."""
    return int(((labels != -100) & (mask == 0)).sum())
# --8<-- [end:labels]


# --8<-- [start:frozen]
def weights_that_never_move(model, step):
    """Names of the parameters that a training step leaves as they are."""
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    step()
    return [name for name, tensor in model.named_parameters() if torch.equal(before[name], tensor)]
# --8<-- [end:frozen]


def step_of(model, parameters):
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(input_ids=ids, attention_mask=mask, labels=torch.tensor([0, 1])).loss.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    batch = {"input_ids": ids, "attention_mask": mask}
    print("dropout: same answer twice?", is_deterministic(encoder.train(), batch), "then",
          is_deterministic(encoder.eval(), batch))  # fmt: skip
    left = torch.tensor([[5, 6, 7, 8, 9], [0, 0, 5, 6, 7]])
    print("padding side: same text alone and in a batch?", same_alone_and_in_a_batch(decoder, ids, mask, 1), "then",
          same_alone_and_in_a_batch(decoder, left, (left != 0).long(), 1))  # fmt: skip
    print("labels: padding in the loss?", padding_in_the_loss(ids, mask), "then",
          padding_in_the_loss(ids.masked_fill(mask == 0, -100), mask))  # fmt: skip
    head_only = weights_that_never_move(encoder, step_of(encoder, encoder.classifier.parameters()))
    all_of_it = weights_that_never_move(encoder, step_of(encoder, encoder.parameters()))
    print("optimizer without the body: weights that stay?", len(head_only), "then", len(all_of_it))
