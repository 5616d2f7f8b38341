"""Numbers too small for full precision become 0."""
import torch

tiny = torch.tensor([1e-40])
print("before:", (tiny * 1).item() > 0)
# --8<-- [start:flush]
print("switched on:", torch.set_flush_denormal(True))  # before PyTorch computes anything
# --8<-- [end:flush]
print("after:", (tiny * 1).item() > 0)
torch.set_flush_denormal(False)
