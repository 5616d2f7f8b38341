"""Says what a precision adds to the loss of a decoder, on a text of yours."""
import copy

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
# Yours: AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B"), and ids = tokenizer(text, return_tensors="pt").input_ids[0]
plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
rounded = copy.deepcopy(plain).to(torch.bfloat16)
ids = torch.randint(1, 1000, (1100,))


# --8<-- [start:loss]
def loss(model, length=512):
    """Nats per token over windows of the text: take some thousand tokens."""
    windows = ids[: len(ids) // length * length].view(-1, 1, length)
    with torch.inference_mode():
        return sum(model(input_ids=window, labels=window).loss.item() for window in windows) / len(windows)


print(f"the loss is {100 * (loss(rounded) / loss(plain) - 1):.2f} % above that of fp32")
# --8<-- [end:loss]
