"""Embeds texts with an encoder: 16 bits on a GPU, batches of similar length, the mean over real tokens only."""
import torch
from transformers import AutoModel, BertConfig

config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
torch.manual_seed(0)
texts = [torch.randint(1, 1000, (length,)) for length in torch.randint(5, 90, (30,)).tolist()]  # your tokenizer's ids

# --8<-- [start:embed]
device, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
model = AutoModel.from_config(config, dtype=dtype).to(device).eval()  # or from_pretrained(..., dtype=dtype)


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)


@torch.inference_mode()  # an encoder is called directly, and a call keeps activations for gradients unless told not to
def embed(texts, size=8):
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
    found = [None] * len(texts)
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        rows = [texts[index] for index in batch]
        ids, mask = padded(rows), padded([torch.ones_like(row) for row in rows])  # 0 may be a token of the vocabulary
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()  # a long sum overflows fp16
        means = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        for index, mean in zip(batch, means.cpu()):
            found[index] = mean
    return torch.stack(found)


vectors = embed(texts)
# --8<-- [end:embed]
print(tuple(vectors.shape))
