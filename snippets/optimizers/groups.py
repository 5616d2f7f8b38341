"""Two learning rates in one optimizer: a lower one for embedding and output layer. One group per setting, not per tensor."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

gpu = torch.cuda.is_available()
set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
model = LlamaForCausalLM(small)
model.to("cuda" if gpu else "cpu")

# --8<-- [start:groups]
slow = [parameter for name, parameter in model.named_parameters() if "embed_tokens" in name or "lm_head" in name]
known = {id(parameter) for parameter in slow}
rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
groups = [{"params": rest, "lr": 1e-3}, {"params": slow, "lr": 1e-4}]
optimizer = torch.optim.AdamW(groups, weight_decay=0.0, fused=True)
# --8<-- [end:groups]

row = torch.randint(0, 500, (32,))
rows = [{"input_ids": row, "labels": row}] * 16
arguments = TrainingArguments(
    "out", max_steps=4, logging_steps=1, save_strategy="no", report_to="none", bf16=gpu, use_cpu=not gpu
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows, optimizers=(optimizer, None))
trainer.train()
print("the schedule scales:", *trainer.lr_scheduler.base_lrs)
