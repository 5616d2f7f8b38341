"""bitsandbytes for a large vocabulary: the optimizer made by hand, with the embedding in 8 bits too."""
import torch
from bitsandbytes.optim import AdamW8bit
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
config = LlamaConfig(
    vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
)
model = AutoModelForCausalLM.from_config(config).to("cuda" if gpu else "cpu")
rows = [torch.randint(1024, (128,)) for _ in range(64)]
data = [{"input_ids": row, "labels": row} for row in rows]
arguments = TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, save_strategy="no", use_cpu=not gpu)

# --8<-- [start:by-hand]
# Trainer would keep the embedding in 32 bits. The optimizer's own default for weight_decay is 0.01, not Trainer's
optimizer = AdamW8bit(model.parameters(), lr=5e-5, weight_decay=0.0)
trainer = Trainer(model=model, args=arguments, train_dataset=data, optimizers=(optimizer, None))
# --8<-- [end:by-hand]
trainer.train()
