"""Schedule-free AdamW: averages the weights in place of lowering the learning rate."""
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
    optim="schedule_free_adamw",
    learning_rate=1e-3,  # for these random weights; a checkpoint wants less
    lr_scheduler_type="constant",  # the default, linear, is a schedule on top
    warmup_steps=2,  # a whole number: the optimizer warms up by itself
)
# --8<-- [end:arguments]

trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
trainer.optimizer.eval()  # from the weights of training to their average: before you save, generate or evaluate
trainer.save_model("averaged")
