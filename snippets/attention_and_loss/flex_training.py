"""Texts packed into rows of one length, trained with FlexAttention. A CPU trains with SDPA and the same mask, dense."""
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from transformers import AutoModelForCausalLM, LlamaConfig

gpu = torch.cuda.is_available()  # on a CPU, FlexAttention has no backward pass
device = "cuda" if gpu else "cpu"
LENGTH = 4096 if gpu else 128  # a multiple of 128, the same in every batch: the kernel is compiled once
ROWS = 4
config = LlamaConfig(
    hidden_size=1024 if gpu else 64, intermediate_size=2816 if gpu else 128, num_hidden_layers=12 if gpu else 2,
    num_attention_heads=16 if gpu else 2, num_key_value_heads=4 if gpu else 1, vocab_size=1024,
)


def packed(texts):
    """Rows of LENGTH tokens: ids, positions, the number of each token's text (-1: padding), and labels."""
    rows, left = [[]], LENGTH
    for text in texts:  # in order; no text may be longer than a row
        if len(text) > left:
            rows.append([])
            left = LENGTH
        rows[-1].append(text)
        left -= len(text)
    ids, positions = torch.zeros(2, len(rows), LENGTH, dtype=torch.long)
    numbers, labels = torch.full((len(rows), LENGTH), -1), torch.full((len(rows), LENGTH), -100)
    for row, content in enumerate(rows):
        start = 0
        for number, text in enumerate(content):
            here = slice(start, start + len(text))
            ids[row, here], positions[row, here], numbers[row, here] = text, torch.arange(len(text)), number
            labels[row, start + 1 : here.stop] = text[1:]  # a text's first token is not predicted from the text before
            start = here.stop
    return ids, positions, numbers, labels


# --8<-- [start:mask]
block_mask = torch.compile(create_block_mask) if gpu else create_mask  # uncompiled it writes tokens x tokens


def mask_of(numbers):
    """For all layers and heads: a token sees itself and what comes before it in its own text."""

    def visible(row, head, query, key):
        return (numbers[row, query] == numbers[row, key]) & (query >= key)

    rows, length = numbers.shape
    return block_mask(visible, rows, None, length, length, device=numbers.device)
# --8<-- [end:mask]


def main():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="flex_attention" if gpu else "sdpa")
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    lengths = torch.randint(LENGTH // 16, LENGTH // 2, (60,)).tolist()
    batches = [batch.split(ROWS) for batch in packed([torch.randint(0, 1024, (length,)) for length in lengths])]
    # --8<-- [start:step]
    for ids, positions, numbers, labels in zip(*batches):
        if len(ids) < ROWS:
            break  # another number of rows is another shape
        ids, positions, numbers, labels = (part.to(device) for part in (ids, positions, numbers, labels))
        mask = mask_of(numbers)  # once per batch
        with torch.autocast(device, torch.bfloat16):
            loss = model(ids, attention_mask=mask, position_ids=positions, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.3f}")
    # --8<-- [end:step]


if __name__ == "__main__":
    main()
