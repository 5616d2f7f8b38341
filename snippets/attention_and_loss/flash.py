"""FlashAttention, for windows and packed sequences. Needs a GPU (NVIDIA: capability 8.0 or later) and 16 bits."""
import torch
from transformers import AutoModelForCausalLM, DataCollatorWithFlattening, MistralConfig, Trainer, TrainingArguments

config = MistralConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16,
                       num_key_value_heads=4, sliding_window=1024)

# --8<-- [start:model]
model = AutoModelForCausalLM.from_config(
    config,
    dtype=torch.bfloat16,  # pure bf16, which rounds small updates away; without it bf16=True is mixed precision
    attn_implementation="flash_attention_2",  # the package flash-attn, or else a kernel of the Hub
)
collator = DataCollatorWithFlattening()  # sequences end to end in place of padding
# --8<-- [end:model]

rows = [torch.randint(0, config.vocab_size, (length,)) for length in range(500, 4500, 250)]
data = [{"input_ids": row, "labels": row} for row in rows]
arguments = TrainingArguments("out", max_steps=4, save_strategy="no", bf16=True, per_device_train_batch_size=4)
Trainer(model=model, args=arguments, train_dataset=data, data_collator=collator).train()
