"""Rounds the rows of the embedding and of the output layer up to a multiple of 64."""
from transformers import LlamaConfig, LlamaForCausalLM

model = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, vocab_size=50257))
# --8<-- [start:pad]
model.resize_token_embeddings(pad_to_multiple_of=64)
print(model.config.vocab_size, tuple(model.lm_head.weight.shape))
# --8<-- [end:pad]
