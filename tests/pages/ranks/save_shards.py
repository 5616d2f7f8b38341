"""Two ranks write the model of the folder `model` as shards into the folder `shards`."""

import torch.distributed as dist
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

dist.init_process_group("gloo")
model = AutoModelForCausalLM.from_pretrained("model", distributed_config=DistributedConfig(fsdp_size=2))
model.save_pretrained("shards", distributed_checkpoint=True)
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
