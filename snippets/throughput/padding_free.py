"""All sequences of a batch in one row, without padding."""
import torch
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=1024 if gpu else 64, intermediate_size=2816 if gpu else 128, num_hidden_layers=12 if gpu else 2,
    num_attention_heads=16 if gpu else 2, vocab_size=1024,
))
lengths = [8, 90, 12, 85, 20, 128, 16, 70] * 8
data = [{"input_ids": torch.randint(0, 1024, (length,))} for length in lengths]  # the collator makes the labels

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    per_device_train_batch_size=8,
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=data,
    data_collator=DataCollatorWithFlattening(),  # makes position_ids, and no mask
)
# --8<-- [end:arguments]
trainer.train()
