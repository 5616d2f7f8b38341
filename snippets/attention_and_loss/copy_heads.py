"""On a GPU without a flash kernel: SDPA gets as many key and value heads as query heads. Before the first step."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

# --8<-- [start:copy]
from transformers.integrations import sdpa_attention

sdpa_attention.use_gqa_in_sdpa = lambda *_: False
# --8<-- [end:copy]
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, vocab_size=100)
model = AutoModelForCausalLM.from_config(config)
print(model(input_ids=torch.arange(8)[None]).logits.shape)
