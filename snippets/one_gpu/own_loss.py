"""A loss of your own in Trainer, which four micro-batches of 2 rows do not change against one batch of 8."""
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments, set_seed


# --8<-- [start:loss]
class OwnLoss(Trainer):
    loss_is_scaled_for_ga = True  # divided here, by the tokens of all micro-batches: Trainer must not divide again

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        inputs = dict(inputs)
        labels = inputs.pop("labels")[:, 1:].flatten()
        outputs = model(**inputs)
        total = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1).float(), labels, reduction="sum")
        loss = total / (labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch)
        return (loss, outputs) if return_outputs else loss
# --8<-- [end:loss]


gpu = torch.cuda.is_available()
set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(500, (16, 32))]
for micro, accumulation in ((8, 1), (2, 4)):
    set_seed(0)
    arguments = TrainingArguments(
        "out", max_steps=2, logging_steps=1, save_strategy="no", use_cpu=not gpu, disable_tqdm=True,
        per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation,
    )
    trainer = OwnLoss(model=LlamaForCausalLM(small), args=arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print(micro, "x", accumulation, *(round(entry["loss"], 4) for entry in trainer.state.log_history if "loss" in entry))
