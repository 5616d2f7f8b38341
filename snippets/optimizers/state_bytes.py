"""Counts the bytes of state that an optimizer really holds, quantized tensors and projections included."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments


# --8<-- [start:count]
def storages(thing):
    """{address: bytes} of everything that the state keeps alive: a view counts as the whole that it is cut from."""
    if isinstance(thing, torch.Tensor):
        if hasattr(thing, "__tensor_flatten__"):  # torchao's quantized tensors: what is inside them
            return storages([getattr(thing, name) for name in thing.__tensor_flatten__()[0]])
        return {thing.untyped_storage().data_ptr(): thing.untyped_storage().nbytes()}
    if isinstance(thing, dict):
        return storages(list(thing.values()))
    if isinstance(thing, list):
        return {address: size for one in thing for address, size in storages(one).items()}
    return storages(vars(thing)) if hasattr(thing, "ortho_matrix") else {}  # GaLore and APOLLO


def state_bytes(optimizer):
    return sum(storages(list(optimizer.state.values())).values())
# --8<-- [end:count]


small = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=4096)
for name in ("adamw_torch_fused", "adafactor", "adamw_bnb_8bit"):
    model = AutoModelForCausalLM.from_config(LlamaConfig(**small))
    arguments = TrainingArguments("out", optim=name, use_cpu=True)
    optimizer = Trainer(model=model, args=arguments).create_optimizer()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    print(f"{name}: {state_bytes(optimizer) / model.num_parameters():.3f} bytes per parameter")
