"""Generates with whole experts on each rank, and attention split. Run: torchrun --nproc-per-node 2 experts.py"""

import os

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed
from transformers.distributed import DistributedConfig

size = int(os.environ["WORLD_SIZE"])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
set_seed(0)
if dist.get_rank() == 0:  # a checkpoint with random weights; yours comes from the Hub
    Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=500, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=2, num_experts=8,
        num_experts_per_tok=2, num_attention_heads=4, num_key_value_heads=4, head_dim=16,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )).save_pretrained("checkpoint")  # fmt: skip
dist.barrier()
# --8<-- [start:generate]
layout = DistributedConfig(tp_size=size, ep_size=size)  # attention and embeddings split, experts whole
model = AutoModelForCausalLM.from_pretrained("checkpoint", distributed_config=layout)
prompts = torch.tensor([[1, 2, 3, 4, 5]]).to(model.device)
tokens = model.generate(prompts, max_new_tokens=12, do_sample=False)
if dist.get_rank() == 0:
    print(model.model.layers[0].mlp.experts.num_experts, "experts on each rank", tokens[:, 5:].tolist())
# --8<-- [end:generate]
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
