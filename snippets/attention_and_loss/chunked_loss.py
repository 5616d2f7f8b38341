"""A language model whose loss never holds the logits of all tokens at once. Plain PyTorch, any device."""
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.modeling_outputs import CausalLMOutputWithPast


# --8<-- [start:loss]
def chunk_loss(hidden, weight, labels):
    return F.cross_entropy(F.linear(hidden, weight).float(), labels, ignore_index=-100, reduction="sum")


def chunked_cross_entropy(hidden, weight, labels, num_items=None, chunk=2048):
    labels = F.pad(labels, (0, 1), value=-100)[:, 1:].flatten()  # token n predicts token n + 1
    if num_items is None:
        num_items = (labels != -100).sum()
    pieces = zip(hidden.flatten(0, 1).split(chunk), labels.split(chunk))
    return sum(checkpoint(chunk_loss, piece, weight, label, use_reentrant=False) for piece, label in pieces) / num_items


class ChunkedLlamaForCausalLM(LlamaForCausalLM):  # Trainer reads "ForCausalLM" from the name
    def forward(self, input_ids=None, labels=None, num_items_in_batch=None, **kwargs):
        if labels is None or not self.training:  # generation and evaluation need the logits
            return super().forward(input_ids, labels=labels, num_items_in_batch=num_items_in_batch, **kwargs)
        hidden = self.model(input_ids, **kwargs).last_hidden_state
        loss = chunked_cross_entropy(hidden, self.lm_head.weight, labels, num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss)
# --8<-- [end:loss]


gpu = torch.cuda.is_available()
size = {"hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16, "vocab_size": 128256} if gpu else {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 1000}
model = ChunkedLlamaForCausalLM(LlamaConfig(**size))  # a checkpoint: ChunkedLlamaForCausalLM.from_pretrained(...)
rows = [torch.randint(0, model.config.vocab_size, (256,)) for _ in range(16)]
data = [{"input_ids": row, "labels": row} for row in rows]
arguments = TrainingArguments("out", max_steps=4, save_strategy="no", use_cpu=not gpu, per_device_train_batch_size=4)
Trainer(model=model, args=arguments, train_dataset=data).train()
