"""Keeps the inputs of the checkpointed layers in the host's memory."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # Llama, 1 billion parameters
    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    )

model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, config.vocab_size, (16, 128))
data = [{"input_ids": row, "labels": row} for row in ids]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu, per_device_train_batch_size=2,
    bf16=True,  # half the bytes to move
    activation_checkpointing=True,
    activation_checkpointing_kwargs={"offload": gpu},  # True needs an accelerator
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
