"""Do driver, GPU, torch and extensions fit each other? Prints a line for each, and what is wrong with it."""
import importlib
import re
import shutil
import subprocess
import sys

import torch


# --8<-- [start:check]
def driver():
    """What nvidia-smi says: the newest CUDA that the driver can serve."""
    if not shutil.which("nvidia-smi"):
        return "no nvidia-smi: no driver, or a container that was started without --gpus all"
    said = subprocess.run(["nvidia-smi"], capture_output=True).stdout.decode()  # it prints its errors there too
    return next((line.strip(" |") for line in said.splitlines() if "CUDA Version" in line), said.strip())


def build():
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} has no CUDA: it was installed as the CPU build"
    return f"torch {torch.__version__} for CUDA {torch.version.cuda}"


def architecture():
    """Kernels of one major number run on every later minor number: an RTX 4090 (8.9) takes those of 8.6."""
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    known = torch.cuda.get_arch_list()
    if torch.version.hip:
        gpu = torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
        fits = gpu in known
    else:
        major, minor = torch.cuda.get_device_capability()
        gpu = f"sm_{major}{minor}"
        built = [divmod(int(number), 10) for number in re.findall(r"sm_(\d+)", " ".join(known))]
        ptx = [divmod(int(number), 10) for number in re.findall(r"compute_(\d+)", " ".join(known))]  # runs on newer GPUs
        fits = any(its_major == major and its_minor <= minor for its_major, its_minor in built)
        fits = fits or any(its <= (major, minor) for its in ptx)
    return f"{gpu} {'runs' if fits else 'does NOT run'} the kernels of this build: {' '.join(known)}"


def extension(name):
    """Compiled against another torch, an extension fails at its import."""
    try:
        return f"{name} {getattr(importlib.import_module(name), '__version__', '')} imports"
    except ImportError as error:
        return f"{name}: {error}"
# --8<-- [end:check]


if __name__ == "__main__":
    extensions = sys.argv[1:] or ["flash_attn", "bitsandbytes"]
    for line in (sys.version.split()[0], driver(), build(), architecture(), *map(extension, extensions)):
        print(line)
