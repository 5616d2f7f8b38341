"""Trains adapters beside the frozen weights of a language model."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
if gpu:  # Llama, 1 billion parameters
    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    )
# A checkpoint: AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
ids = torch.randint(0, config.vocab_size, (16, 128))
data = [{"input_ids": row, "labels": row} for row in ids]

# --8<-- [start:arguments]
adapters = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
model = get_peft_model(model, adapters)
model.print_trainable_parameters()
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu, per_device_train_batch_size=2,
    bf16=True,  # the adapters are fp32: compute under autocast; on a T4 or V100 fp16=True and fp16 weights
    activation_checkpointing=True,  # LoRA does not shrink the activations
    learning_rate=2e-4,
)
# --8<-- [end:arguments]

Trainer(model=model, args=arguments, train_dataset=data).train()
