"""Muon for the matrices inside the layers and AdamW for the rest, as one optimizer for Trainer."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer  # what the layers of a model are


# --8<-- [start:optimizer]
class MuonAndAdamW(torch.optim.Optimizer):
    def __init__(self, model, lr, weight_decay=0.0):
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        tables = {module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)}
        inside = {p for layer in layers for p in layer.parameters() if p.ndim == 2} - tables
        trained = [p for p in model.parameters() if p.requires_grad]
        matrices, others = [p for p in trained if p in inside], [p for p in trained if p not in inside]
        muon = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self.parts = [muon, torch.optim.AdamW(others, lr=lr, weight_decay=0.0, fused=True)]
        super().__init__([part.param_groups[0] for part in self.parts], {})

    def step(self, closure=None):
        for part, group in zip(self.parts, self.param_groups):  # one state and one list of groups, also after a resume
            part.state, part.param_groups = self.state, [group]
            part.step()
# --8<-- [end:optimizer]


gpu = torch.cuda.is_available()
if gpu:  # 1.1 billion parameters
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(
        vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
model = AutoModelForCausalLM.from_config(config).to("cuda" if gpu else "cpu")
rows = [torch.randint(1024, (128,)) for _ in range(64)]
data = [{"input_ids": row, "labels": row} for row in rows]

# --8<-- [start:arguments]
arguments = TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, save_strategy="no", use_cpu=not gpu)
optimizer = MuonAndAdamW(model, lr=1e-3, weight_decay=arguments.weight_decay)  # 1e-3 is for these random weights
trainer = Trainer(model=model, args=arguments, train_dataset=data, optimizers=(optimizer, None))  # None: its schedule
# --8<-- [end:arguments]
trainer.train()
