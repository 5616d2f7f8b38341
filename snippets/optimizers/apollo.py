"""APOLLO: AdamW at a low rank gives the scale of each row or column of the gradient."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # 1.1 billion parameters
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(
        vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    )
model = AutoModelForCausalLM.from_config(config)
rows = [torch.randint(1024, (128,)) for _ in range(64)]
data = [{"input_ids": row, "labels": row} for row in rows]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, per_device_train_batch_size=4, save_strategy="no", use_cpu=not gpu,
    optim="apollo_adamw",
    optim_target_modules=["attn", "mlp"],
    optim_args="rank=32,update_proj_gap=200",
    learning_rate=1e-3,  # for these random weights; a checkpoint wants less
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
