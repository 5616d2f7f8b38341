"""Which attention kernel a model uses: one argument."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # 0.2 billion parameters
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)

# --8<-- [start:model]
# "sdpa" (the default), "eager", "flex_attention", "flash_attention_2", "flash_attention_3", "flash_attention_4",
# or a kernel of the Hub: "kernels-community/flash-attn2"
model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")  # from_pretrained takes it too
# --8<-- [end:model]

rows = [torch.randint(0, config.vocab_size, (128,)) for _ in range(16)]
data = [{"input_ids": row, "labels": row} for row in rows]
arguments = TrainingArguments("out", max_steps=4, save_strategy="no", use_cpu=not gpu, per_device_train_batch_size=4)
Trainer(model=model, args=arguments, train_dataset=data).train()
