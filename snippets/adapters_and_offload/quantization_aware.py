"""Training that feels the rounding to 4 bits: its loss is that of the model which is rounded afterwards."""
import torch
from torchao.quantization import IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.qat import QATConfig
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
small = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(small)
text = torch.randint(256, (4, 32))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

# --8<-- [start:aware]
four_bits = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))
quantize_(model, QATConfig(four_bits, step="prepare"))  # each forward pass rounds a copy of the weights
for _ in range(20):
    model(text, labels=text).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.save_pretrained("trained")  # the weights as they are, under their usual names
# --8<-- [end:aware]

with torch.no_grad():
    print(f"loss in training {model(text, labels=text).loss:.4f}")
    trained = LlamaForCausalLM.from_pretrained("trained")
    print(f"loss of the saved weights {trained(text, labels=text).loss:.4f}")
    quantize_(trained, four_bits)
    print(f"loss of them in 4 bits {trained(text, labels=text).loss:.4f}")
