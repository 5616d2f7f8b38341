"""Training that feels the rounding to 4 bits: its loss is that of the model which is rounded afterwards, in the same format."""
import torch
from torchao.quantization import Int4WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.qat import QATConfig
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
small = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(small)
text = torch.randint(256, (4, 32))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

# --8<-- [start:aware]
served = Int4WeightOnlyConfig(group_size=32)  # the format that the server will read
quantize_(model, QATConfig(served, step="prepare"))  # each forward pass rounds a copy of the weights
for _ in range(20):
    model(text, labels=text).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.save_pretrained("trained")  # the weights as they are, under their usual names
# --8<-- [end:aware]


def loss_in(form):
    trained = LlamaForCausalLM.from_pretrained("trained")
    if form is not None:
        quantize_(trained, QATConfig(form, step="prepare"))  # rounds as the format does; on a GPU: quantize_(trained, form)
    return trained(text, labels=text).loss


with torch.no_grad():
    print(f"loss in training {model(text, labels=text).loss:.4f}")
    print(f"loss of the saved weights {loss_in(None):.4f}")
    print(f"loss of them in the format of the training {loss_in(served):.4f}")
    print(f"loss of them in another one {loss_in(IntxWeightOnlyConfig(torch.int4, PerGroup(32))):.4f}")  # without a zero point
