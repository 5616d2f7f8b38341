"""Generates for many prompts: sorted by length, padded on the left, in batches of at most so many tokens."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_config(config).to(device)
torch.manual_seed(0)
# With a tokenizer: prompts = [tokenizer(text, return_tensors="pt").input_ids[0] for text in texts]
prompts = [torch.randint(1, 1000, (length,)) for length in torch.randint(5, 60, (20,)).tolist()]

# --8<-- [start:batches]
NEW, BUDGET = 16, 300  # BUDGET: the tokens whose KV cache fits, prompts and answers together


def batches(lengths):
    """Indices, the longest prompts first: a batch that does not fit fails at once, and not after an hour."""
    batch = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * (lengths[batch[0]] + NEW) > BUDGET:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left").to(device)


answers = [None] * len(prompts)
for batch in batches([len(prompt) for prompt in prompts]):
    rows = [prompts[index] for index in batch]
    ids, mask = padded(rows), padded([torch.ones_like(row) for row in rows])
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False)
    for index, answer in zip(batch, tokens[:, ids.shape[1] :]):
        answers[index] = answer.cpu()  # in the order of the prompts again
# --8<-- [end:batches]
print(len(answers), "answers of", {len(answer) for answer in answers}, "tokens")
