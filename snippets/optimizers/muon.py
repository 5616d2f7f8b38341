"""Muon for the matrices inside the layers and AdamW for the rest, as one optimizer for Trainer."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments


# --8<-- [start:optimizer]
class MuonAndAdamW(torch.optim.Optimizer):
    def __init__(self, model, lr):
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        inside = {name for name, p in named if p.ndim == 2 and "embed" not in name and "lm_head" not in name}
        matrices, others = [p for name, p in named if name in inside], [p for name, p in named if name not in inside]
        muon = torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw")
        self.parts = [muon, torch.optim.AdamW(others, lr=lr, fused=True)]
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
        vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    )
model = AutoModelForCausalLM.from_config(config).to("cuda" if gpu else "cpu")
rows = [torch.randint(1024, (128,)) for _ in range(64)]
data = [{"input_ids": row, "labels": row} for row in rows]

# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, per_device_train_batch_size=4, save_strategy="no", use_cpu=not gpu,
)
optimizers = (MuonAndAdamW(model, lr=1e-3), None)  # None: Trainer makes the schedule
# --8<-- [end:arguments]
Trainer(model=model, args=arguments, train_dataset=data, optimizers=optimizers).train()
