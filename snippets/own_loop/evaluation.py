"""Evaluates a language model without keeping its logits."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config)
data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 1000, (32, 64))]


# --8<-- [start:evaluation]
def keep_predicted_tokens(logits, labels):
    """Runs after every batch, on the GPU: one number per token stays, in place of one per word of the vocabulary."""
    return logits.argmax(dim=-1)


def accuracy(evaluated):
    predicted, labels = evaluated.predictions[:, :-1], evaluated.label_ids[:, 1:]
    return {"accuracy": float((predicted == labels)[labels != -100].mean())}


trainer = Trainer(
    model=model,
    args=TrainingArguments("out", per_device_eval_batch_size=8, use_cpu=not torch.cuda.is_available()),
    eval_dataset=data,
    compute_metrics=accuracy,
    preprocess_logits_for_metrics=keep_predicted_tokens,
)
metrics = trainer.evaluate()
# --8<-- [end:evaluation]
predictions = trainer.predict(data).predictions
print(f"{metrics['eval_loss']:.3f}, {predictions.nbytes:,} bytes of predictions")
