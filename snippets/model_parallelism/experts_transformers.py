"""Expert parallelism by transformers. Run: torchrun --nproc-per-node 2 experts_transformers.py"""

import os

import torch
import torch.distributed as dist
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.distributed import DistributedConfig

size = int(os.environ["WORLD_SIZE"])
config = Qwen3MoeConfig(
    vocab_size=256, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=2, num_experts=8, num_experts_per_tok=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, use_cache=False, output_router_logits=False,
)
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
torch.manual_seed(0)
if dist.get_rank() == 0:
    Qwen3MoeForCausalLM(config).save_pretrained("checkpoint")
dist.barrier()
# --8<-- [start:load]
layout = DistributedConfig(fsdp_size=size, ep_size=size)  # dense weights sharded by FSDP2, whole experts spread
model = Qwen3MoeForCausalLM.from_pretrained("checkpoint", distributed_config=layout)
# --8<-- [end:load]
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).to(model.device)
my_ids = ids.chunk(size)[dist.get_rank()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for _ in range(4):
    loss = model(input_ids=my_ids, labels=my_ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() / size
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"loss {mean.item():.5f}")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
