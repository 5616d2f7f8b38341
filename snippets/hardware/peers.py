"""Can the GPUs of this machine write into each other's memory? Without that, NCCL goes through host memory."""

import torch

# --8<-- [start:peers]
count = torch.cuda.device_count()
for one in range(count):
    reached = [other for other in range(count) if other != one and torch.cuda.can_device_access_peer(one, other)]
    print(f"GPU {one}, {torch.cuda.get_device_name(one)}: reaches {reached or 'no other'}")
print(f"{count} GPUs")
# --8<-- [end:peers]
