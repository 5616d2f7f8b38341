"""Two ranks that wait for each other: rank 1 has one batch less than rank 0. Each tool tells it in other words.

    bash debug_stuck.sh detail
    bash debug_stuck.sh flight
"""
import os
import pickle
from datetime import timedelta

import torch
import torch.distributed as dist

SECONDS = int(os.environ.get("SECONDS_TO_WAIT", 20))  # by default gloo waits for half an hour, NCCL for ten minutes


# --8<-- [start:mistake]
def train(group, batches):
    for batch in range(batches):
        average_gradients(group, batch)
    save_checkpoint(group)


def average_gradients(group, batch):
    dist.all_reduce(torch.full((4, 4), float(batch)), group=group)


def save_checkpoint(group):
    dist.barrier(group)  # rank 1 is here already, while rank 0 still averages
# --8<-- [end:mistake]


# --8<-- [start:record]
def write_flight_record(folder="flight"):
    """What this rank did last. NCCL writes it by itself when its time is up; gloo has to be asked."""
    record = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
    name, description = record["entries"][-1]["process_group"]
    group = {"name": name, "desc": description, "ranks": str([*range(dist.get_world_size())])}
    record["pg_config"] = {name: group}  # torchfrtrace looks for it, and gloo of torch 2.13 leaves the name out
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/rank_{dist.get_rank()}", "wb") as file:
        pickle.dump(record, file)
# --8<-- [end:record]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    group = dist.new_group(timeout=timedelta(seconds=SECONDS))
    try:
        train(group, batches=4 - dist.get_rank())
    except RuntimeError as error:
        print(f"rank {dist.get_rank()}: {error}", flush=True)
        if "TORCH_FR_BUFFER_SIZE" in os.environ:
            write_flight_record()
        # Status 0: at another one torchrun kills the other rank before it has told its side. And at once: gloo's threads
        # still wait, and the end of Python would sometimes abort the process because of them.
        os._exit(0)
