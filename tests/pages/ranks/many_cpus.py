"""Says how long gloo waits when Trainer starts the process group with `use_cpu=True` and a time-out of its own."""

import torch
import torch.distributed as dist
from transformers import TrainingArguments

arguments = TrainingArguments("out", use_cpu=True, ddp_timeout=60, report_to=[])
options = dist.group.WORLD._get_backend(torch.device("cpu")).options
print(arguments.parallel_mode.value, dist.get_backend(), options._timeout.total_seconds())
dist.destroy_process_group()
