"""Steps any optimizer inside the backward pass: each gradient is used and freed at once, so never more than a few exist."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed


# --8<-- [start:hooks]
def step_in_backward(model, make):
    """Gives each parameter an optimizer of its own, which steps as soon as that parameter's gradient is complete."""
    optimizers = {parameter: make([parameter]) for parameter in model.parameters() if parameter.requires_grad}

    def use(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()  # frees the gradient

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(use)
    return list(optimizers.values())
# --8<-- [end:hooks]


gpu = torch.cuda.is_available()
device = "cuda" if gpu else "cpu"
set_seed(0)
small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
model = LlamaForCausalLM(small).to(device)
ids = torch.randint(500, (4, 32), device=device)

# --8<-- [start:loop]
steps = 8
optimizers = step_in_backward(model, lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0))
for step in range(steps):
    for optimizer in optimizers:
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - step / steps)  # the schedule: set it before the backward pass
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()  # updates the weights too
    print(f"{loss.item():.4f}")
# --8<-- [end:loop]
print("gradients left:", sum(parameter.grad is not None for parameter in model.parameters()))
