"""Batches of similar length, each padded to its longest row."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

gpu = torch.cuda.is_available()
model = LlamaForCausalLM(LlamaConfig(
    hidden_size=1024 if gpu else 64, intermediate_size=2816 if gpu else 128, num_hidden_layers=12 if gpu else 2,
    num_attention_heads=16 if gpu else 2, vocab_size=1024,
))
lengths = [8, 90, 12, 85, 20, 128, 16, 70] * 8
data = [{"input_ids": (ids := torch.randint(0, 1024, (length,))), "labels": ids} for length in lengths]


# --8<-- [start:arguments]
# With a tokenizer: DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8)
def pad(rows, multiple=8):
    width = -(-max(len(row["input_ids"]) for row in rows) // multiple) * multiple

    def filled(key, value):
        rest = [row[key].new_full((width - len(row[key]),), value) for row in rows]
        return torch.stack([torch.cat([row[key], fill]) for row, fill in zip(rows, rest)])

    ids = filled("input_ids", -1)
    mask, labels = (ids >= 0).long(), filled("labels", -100)
    return {"input_ids": ids.clamp(min=0), "attention_mask": mask, "labels": labels}


arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", use_cpu=not gpu,
    per_device_train_batch_size=8,
    train_sampling_strategy="group_by_length",
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=pad)
# --8<-- [end:arguments]
trainer.train()
