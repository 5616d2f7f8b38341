"""Fine-tunes all weights on the GPUs of one node. Run it as: torchrun --nproc-per-node 8 finetune_14b.py --help"""
import argparse
import json
import math
import os
import random
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.distributed import DistributedConfig

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen2.5-14B-Instruct", help="a model of the Hub, or a folder")
parser.add_argument("--data", default="conversations.jsonl", help='a {"messages": [...]} in each line')
parser.add_argument("--length", type=int, default=4096, help="tokens; longer conversations are cut")
parser.add_argument("--batch", type=int, default=64, help="conversations for each update, of all GPUs together")
parser.add_argument("--micro-batch", type=int, default=1, help="conversations that a GPU computes at a time")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--rate", type=float, default=1e-5, help="learning rate")
parser.add_argument("--save-every", type=int, default=50, help="updates")
asked = parser.parse_args()
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if asked.batch % world:
    raise SystemExit(f"--batch {asked.batch}: {world} GPUs share it; take {math.ceil(asked.batch / world) * world}")
# --8<-- [start:model]
tokenizer = AutoTokenizer.from_pretrained(asked.model)
model = AutoModelForCausalLM.from_pretrained(
    asked.model,
    dtype=torch.float32,  # what AdamW updates
    distributed_config=DistributedConfig(fsdp_size=world, fsdp_mixed_precision=gpu),  # shards; a GPU computes in bf16
).train()
model.activation_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=asked.rate, weight_decay=0.0, fused=True)
# --8<-- [end:model]


def tokens_of(messages):
    """Tokens of a conversation, and labels of its last answer only."""
    question = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True)["input_ids"]
    whole = tokenizer.apply_chat_template(messages)["input_ids"][: asked.length]
    return torch.tensor(whole), torch.tensor(([-100] * len(question) + whole[len(question) :])[: len(whole)])


lines = Path(asked.data).read_text(encoding="utf-8").splitlines()
rows = [row for row in (tokens_of(json.loads(line)["messages"]) for line in lines) if (row[1] != -100).any()]
steps = asked.epochs * len(rows) // asked.batch
whole = [int(path.parent.name) for path in Path("checkpoints").glob("*/.metadata")]  # written last in each folder
chosen = [max(whole, default=0)]
dist.broadcast_object_list(chosen)  # rank 0 decides
if first := chosen[0]:
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    dcp.load(state, checkpoint_id=f"checkpoints/{first}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def of_step(step):
    """The rows of this rank in an update: the same after a restart."""
    places = [divmod(number, len(rows)) for number in range(step * asked.batch, (step + 1) * asked.batch)]
    shuffled = {epoch: random.Random(epoch).sample(rows, len(rows)) for epoch, _ in places}
    return [shuffled[epoch][place] for epoch, place in places][rank::world]


# --8<-- [start:train]
for step in range(first, steps):
    begun, mine = time.perf_counter(), sorted(of_step(step), key=lambda row: len(row[0]))  # like lengths, little padding
    total = torch.zeros((), device=device)
    counts = torch.tensor([(len(ids), (labels[1:] != -100).sum().item()) for ids, labels in mine], device=device).sum(0)
    dist.all_reduce(counts)  # tokens of all ranks, and the learned ones among them: of these the loss is the mean
    for start in range(0, len(mine), asked.micro_batch):
        rows_now = mine[start : start + asked.micro_batch]
        ids, labels = (pad_sequence(part, batch_first=True, padding_value=-100).to(device) for part in zip(*rows_now))
        loss = model(input_ids=ids.clamp(min=0), labels=labels, num_items_in_batch=counts[1]).loss  # padding is last: no mask
        (loss * world).backward()  # FSDP takes the mean over the ranks
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    for group in optimizer.param_groups:
        group["lr"] = asked.rate * min((step + 1) / max(1, steps / 20), 0.5 + 0.5 * math.cos(math.pi * step / steps))
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(total)
    if rank == 0:
        loss, rate = total.item(), counts[0].item() / (time.perf_counter() - begun)  # item() waits for the GPU: first
        peak = torch.cuda.max_memory_reserved() / 2**30 if gpu else 0
        print(f"update {step + 1} of {steps}: loss {loss:.4f}, {rate:,.0f} tokens/s, {peak:.1f} GiB", flush=True)
    if (step + 1) % asked.save_every == 0 or step + 1 == steps:
        state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        dcp.save(state, checkpoint_id=f"checkpoints/{step + 1}")
        assert Path(f"checkpoints/{step + 1}/.metadata").exists(), "all nodes must share the disk of checkpoints/"
        for old in sorted(map(int, os.listdir("checkpoints")))[:-2] if rank == 0 else ():
            shutil.rmtree(f"checkpoints/{old}")
# --8<-- [end:train]

model.to(torch.bfloat16).save_pretrained("finetuned")  # every rank calls it; rank 0 gathers and writes
if rank == 0:
    tokenizer.save_pretrained("finetuned")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
