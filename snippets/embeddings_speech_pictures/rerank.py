"""Scores documents with a reranker that is a decoder: padded on the left, logits of the last token only."""
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

config = Qwen3Config(
    vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, pad_token_id=0, bos_token_id=None, eos_token_id=None,
)
torch.manual_seed(0)
device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
# or from_pretrained("Qwen/Qwen3-Reranker-0.6B", dtype=dtype)
model = AutoModelForCausalLM.from_config(config, dtype=dtype).to(device).eval()
pairs = [torch.randint(1, 1000, (length,)) for length in torch.randint(20, 200, (9,)).tolist()]  # prompt with document

# --8<-- [start:rerank]
YES, NO = 7, 8  # with the Hub: tokenizer.convert_tokens_to_ids("yes"), and "no"


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left").to(device)


@torch.inference_mode()
def scores(pairs, size=4):
    found = []
    for start in range(0, len(pairs), size):  # a batch of a few: memory does not grow with the documents
        batch = pairs[start : start + size]
        ids, mask = padded(batch), padded([torch.ones_like(pair) for pair in batch])  # 0 is a token: "!" of Qwen
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=1, use_cache=False).logits
        found.append(logits[:, -1, [NO, YES]].float().softmax(-1)[:, 1].cpu())
    return torch.cat(found)


ranked = scores(pairs).argsort(descending=True)
# --8<-- [end:rerank]
print(len(ranked), "documents, the best is number", int(ranked[0]))
