"""Two replicas whose ranks drew other weights: what does each hold after fully_shard?"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = fully_shard(torch.nn.Linear(8, 8), mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")))
mine = model.weight.to_local().sum()
every = [torch.empty(()) for _ in range(2)]
dist.all_gather(every, mine.detach())
if dist.get_rank() == 0:
    print("alike" if every[0] == every[1] else "different", flush=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
