"""Can the GPUs of this machine write into each other's memory, and does what they write arrive?"""

import torch

# --8<-- [start:peers]
count = torch.cuda.device_count()
for one in range(count):
    reached = [other for other in range(count) if other != one and torch.cuda.can_device_access_peer(one, other)]
    print(f"GPU {one}, {torch.cuda.get_device_name(one)}: reaches {reached or 'no other'}")
print(f"{count} GPUs")
# --8<-- [end:peers]

# --8<-- [start:copies]
numbers = torch.randn(64 * 2**20)  # 256 MiB
for one in range(torch.cuda.device_count()):
    for other in range(torch.cuda.device_count()):
        copied = numbers.to(f"cuda:{one}").to(f"cuda:{other}").cpu()
        print(f"GPU {one} to {other}: {'right' if torch.equal(numbers, copied) else 'DAMAGED'}")
# --8<-- [end:copies]
