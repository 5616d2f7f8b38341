"""Keeps an exponential moving average of the weights in fp32 while Trainer trains, saves it, and puts it into the model."""
import os
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed


# --8<-- [start:average]
class Average(TrainerCallback):
    def __init__(self, decay=0.999):
        self.decay = decay

    def file(self, args, state):
        return Path(args.output_dir, f"checkpoint-{state.global_step}", "average.pt")

    def on_train_begin(self, args, state, control, model=None, **more):
        self.kept = {name: p.detach().float().clone() for name, p in model.named_parameters() if p.requires_grad}
        if state.global_step:  # resumed: an average that begins again from these weights would be another one
            for name, saved in torch.load(self.file(args, state), map_location="cpu").items():
                self.kept[name].copy_(saved)

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **more):
        for name, parameter in model.named_parameters():
            if name in self.kept:
                self.kept[name].lerp_(parameter.float(), 1 - self.decay)

    def on_save(self, args, state, control, **more):
        if state.is_world_process_zero:  # all ranks keep the same
            new = self.file(args, state).with_suffix(".new")
            torch.save(self.kept, new)
            os.replace(new, self.file(args, state))  # whole, or not there

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
arguments = TrainingArguments("out", max_steps=16, learning_rate=1e-3, save_steps=8, use_cpu=not gpu)

# --8<-- [start:use]
average = Average(decay=0.9)  # 0.9 for 16 steps; 0.999 for thousands
trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[average])
whole = [path.parent for path in Path("out").glob("checkpoint-*/average.pt")]  # written last in each
last = max(whole, key=lambda folder: int(folder.name.split("-")[1]), default=None)
trainer.train(resume_from_checkpoint=last and str(last))
average.put_into(model)  # then evaluate and save
# --8<-- [end:use]
