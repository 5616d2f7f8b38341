"""Generates with one model that is split over all ranks. Run: torchrun --nproc-per-node 2 tensor_parallel.py"""

import os

import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.distributed import DistributedConfig

size = int(os.environ["WORLD_SIZE"])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if gpu else "gloo")
set_seed(0)
if dist.get_rank() == 0:  # a checkpoint with random weights; yours comes from the Hub
    LlamaForCausalLM(LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )).save_pretrained("checkpoint")  # fmt: skip
dist.barrier()
# --8<-- [start:generate]
heads = AutoConfig.from_pretrained("checkpoint").num_key_value_heads
if heads % size:  # transformers does not check it, and its message names neither number
    raise SystemExit(f"{heads} key and value heads can't be split over {size} ranks: take a divisor of {heads}")
model = AutoModelForCausalLM.from_pretrained("checkpoint", distributed_config=DistributedConfig(tp_size=size))
prompts = torch.tensor([[0, 0, 7, 8, 9], [1, 2, 3, 4, 5]]).to(model.device)  # padded left, the same on every rank
set_seed(0)  # each rank draws its next token itself, so all must draw alike
tokens = model.generate(prompts, attention_mask=(prompts != 0).long(), max_new_tokens=12, do_sample=True)
if dist.get_rank() == 0:
    print(tokens[:, 5:].tolist())
# --8<-- [end:generate]
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
