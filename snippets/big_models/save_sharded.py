"""Each rank opens its shards and saves its shards. Run it as: torchrun --nproc_per_node 2 save_sharded.py"""
import subprocess
import sys

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
if dist.get_rank() == 0:
    subprocess.run([sys.executable, "small.py"], check=True)
dist.barrier()

# --8<-- [start:save]
config = DistributedConfig(fsdp_size=dist.get_world_size())
model = AutoModelForCausalLM.from_pretrained("checkpoint", distributed_config=config)
# ... training ...
model.save_pretrained("shards", distributed_checkpoint=True)  # all ranks: a file from each
model.save_pretrained("gathered")  # all ranks: gathered on rank 0, which needs memory for the model
# --8<-- [end:save]
end = dist.barrier(async_op=True)
end.wait()
dist.destroy_process_group()
