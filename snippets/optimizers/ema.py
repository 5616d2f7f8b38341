"""Keeps an exponential moving average of the weights in fp32 while Trainer trains, and puts it into the model at the end."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed


# --8<-- [start:average]
class Average(TrainerCallback):
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.kept = {name: p.detach().float().clone() for name, p in model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **more):
        for name, parameter in model.named_parameters():
            if name in self.kept:
                self.kept[name].lerp_(parameter.float(), 1 - self.decay)

    @torch.no_grad()
    def put_into(self, model):
        for name, parameter in model.named_parameters():
            if name in self.kept:
                parameter.copy_(self.kept[name])
# --8<-- [end:average]


gpu = torch.cuda.is_available()
set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
model = LlamaForCausalLM(small).to("cuda" if gpu else "cpu")
rows = [{"input_ids": row, "labels": row} for row in torch.randint(500, (64, 32))]
arguments = TrainingArguments("out", max_steps=16, learning_rate=1e-3, save_strategy="no", use_cpu=not gpu)

# --8<-- [start:use]
average = Average(model, decay=0.9)  # 0.9 for 16 steps; 0.999 for thousands
trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[average])
trainer.train()
average.put_into(model)  # then evaluate and save
# --8<-- [end:use]
