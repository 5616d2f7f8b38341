"""What do many processes hold that open one checkpoint? Run it as: torchrun --nproc_per_node 2 ranks.py [float32]"""
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig

dist.init_process_group("gloo")
if dist.get_rank() == 0:  # large enough to be seen beside what Python itself takes
    config = LlamaConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8,
                         vocab_size=16000, dtype=torch.bfloat16)
    AutoModelForCausalLM.from_config(config).save_pretrained("checkpoint")
dist.barrier()


# --8<-- [start:memory]
def memory():
    """MB of this process: anonymous, and its share of what several processes have mapped. Linux only."""
    fields = dict(line.split()[:2] for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return [int(fields[name]) / 1e3 for name in ("Pss_Anon:", "Pss_File:")]
# --8<-- [end:memory]


dtype = getattr(torch, sys.argv[1]) if len(sys.argv) > 1 else "auto"
AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=1, hidden_size=64, intermediate_size=64,
                                             num_attention_heads=2, vocab_size=100))  # imports, before memory is counted
before = memory()
model = AutoModelForCausalLM.from_pretrained("checkpoint", dtype=dtype)
with torch.inference_mode():
    model(torch.arange(8)[None])
dist.barrier()
grown = torch.tensor([after - first for after, first in zip(memory(), before)])
dist.barrier()  # all have looked before anybody leaves
dist.all_reduce(grown)
if dist.get_rank() == 0:
    stored = sum(path.stat().st_size for path in Path("checkpoint").glob("*.safetensors")) / 1e6
    print(f"checkpoint {stored:.0f} MB, {os.environ['WORLD_SIZE']} ranks: anonymous {grown[0]:.0f} MB, mapped {grown[1]:.0f} MB")
end = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()
dist.destroy_process_group()
