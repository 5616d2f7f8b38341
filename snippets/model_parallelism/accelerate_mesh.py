"""Which ranks belong together: Accelerate's layout of several dimensions. Run: torchrun --nproc-per-node 4 accelerate_mesh.py"""

import os

import torch
import torch.distributed as dist
from accelerate import ParallelismConfig

gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
# --8<-- [start:layout]
layout = ParallelismConfig(dp_shard_size=2, tp_size=2)  # for Accelerator(parallelism_config=layout) or TrainingArguments
mesh = layout.build_device_mesh("cuda" if gpu else "cpu")
# --8<-- [end:layout]
if dist.get_rank() == 0:
    print(mesh.mesh_dim_names, mesh.mesh.tolist())
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
