"""LoRA beside a few new tokens: only their rows of the embedding are trained and saved."""
import os
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1000)
model = LlamaForCausalLM(small)

# --8<-- [start:tokens]
new = [1000, 1001]  # tokenizer.convert_tokens_to_ids(["<call>", "</call>"]), after tokenizer.add_tokens(...)
model.resize_token_embeddings(1002)  # len(tokenizer)
model = get_peft_model(model, LoraConfig(target_modules="all-linear", trainable_token_indices=new))
# --8<-- [end:tokens]

before = model.get_input_embeddings()(torch.arange(1002)).detach()
row = torch.tensor([1, 1000, 5, 6, 1001, 7])
gpu = torch.cuda.is_available()
arguments = TrainingArguments(
    "out", max_steps=4, learning_rate=1e-2, save_strategy="no", report_to="none", bf16=gpu, use_cpu=not gpu
)
Trainer(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row}] * 8).train()

after = model.get_input_embeddings()(torch.arange(1002, device=model.device)).detach().cpu()
print("rows that moved:", (before != after).any(dim=1).nonzero().flatten().tolist())
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    print("bytes of the adapter:", os.path.getsize(f"{folder}/adapter_model.safetensors"))
