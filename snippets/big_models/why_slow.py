"""Which is it: the disk, the page cache, or the dtype? Usage: why_slow.py [FOLDER]. Linux only."""
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

if len(sys.argv) == 1:
    subprocess.run([sys.executable, "small.py"], check=True)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "checkpoint")
files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
if not files:
    raise SystemExit(f"{folder} holds neither .safetensors nor .bin files: give the folder of a model")
size = sum(path.stat().st_size for path in files)


# --8<-- [start:forget]
def forget():
    """Drops the files from the page cache, as if the machine had just started. Needs no root."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
# --8<-- [end:forget]


def timed(action):
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def read():
    """In order and in large pieces: the best that the disk or network gives."""
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.read(2**23):
                pass


def use(**options):
    """A mapped model is read when it is used, so run it once."""
    with torch.inference_mode():
        AutoModelForCausalLM.from_pretrained(folder, **options)(torch.arange(4)[None])


use()  # imports, which are no part of loading
# --8<-- [start:times]
forget()
disk = timed(read)
forget()
cold, warm = timed(use), timed(use)
whole_file = timed(lambda: use(disable_mmap=True))
other = torch.float32 if AutoModelForCausalLM.from_pretrained(folder).dtype != torch.float32 else torch.bfloat16
converted = timed(lambda: use(dtype=other))
# --8<-- [end:times]
print(f"disk         {size / 1e9 / disk:8.2f} GB/s in order: no loading of {size / 1e9:.2f} GB is faster than {disk:.1f} s")
for name, seconds in (("cold", cold), ("warm", warm), ("no mmap", whole_file), (str(other)[6:], converted)):
    print(f"{name:13}{seconds:8.2f} s")
if size < 1e8:
    print("too small to judge by: give the folder of a larger model")
elif cold > 3 * disk + warm:
    print("mapped reads are slow: try disable_mmap=True, or copy the files to a local disk")
elif cold > 2 * warm:
    print("the disk is what you wait for: a faster or nearer one, or keep the files in the page cache")
else:
    print("not the disk: look at dtype, quantization on the fly, and what your program does after loading")
