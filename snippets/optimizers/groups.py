"""A lower learning rate for embedding and output layer, and no weight decay for norms. One group per setting, not per tensor."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
model = LlamaForCausalLM(small)
model.to("cuda" if gpu else "cpu")

# --8<-- [start:groups]
slow, matrices, vectors = [], [], []
for name, parameter in model.named_parameters():
    ends = "embed_tokens" in name or "lm_head" in name
    (slow if ends else vectors if parameter.ndim < 2 else matrices).append(parameter)  # vectors: norms and biases
groups = [
    {"params": matrices, "lr": 1e-3, "weight_decay": 0.1},
    {"params": vectors, "lr": 1e-3, "weight_decay": 0.0},
    {"params": slow, "lr": 1e-4, "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, fused=True)
# --8<-- [end:groups]

row = torch.randint(0, 500, (32,))
rows = [{"input_ids": row, "labels": row}] * 16
arguments = TrainingArguments(
    "out", max_steps=4, logging_steps=1, save_strategy="no", report_to="none", bf16=gpu, use_cpu=not gpu
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows, optimizers=(optimizer, None))
trainer.train()
print("the schedule scales:", *trainer.lr_scheduler.base_lrs)
