"""Says what this machine and its software are. Nothing here identifies a person or a host."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "transformers", "accelerate")
CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
AMD_FAMILIES = {"23": "Zen2", "25": "Zen3", "26": "Zen5"}  # the virtual machines of a cloud often hide the model


def describe():
    """This machine: name, label, cpu, cores, memory_gib, cpu_features; with an accelerator also gpu, gpu_memory_gib and
    compute_capability. EVIDENCE_MACHINE in the environment overrides the name."""
    cpu = _cpu()
    machine = {
        "cpu": cpu["model"],
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "cpu_features": cpu["features"],
    }
    machine |= _gpu()
    name = (
        _slug(machine["gpu"])
        if "gpu" in machine
        else _slug(f"{cpu['model']} {cpu['variant']}") + f"-{os.cpu_count()}core"
    )
    if "COLAB_RELEASE_TAG" in os.environ:
        name = f"colab-{name}"
    name = _slug(os.environ.get("EVIDENCE_MACHINE", "")) or name
    label = machine.get("gpu") or " ".join(filter(None, [cpu["model"], cpu["variant"], f"{os.cpu_count()} cores"]))
    return {"name": name, "label": label} | machine


def software(packages=()):
    """Versions: python, torch, transformers, accelerate, `packages` (those that are installed), and CUDA where torch has it."""
    versions = {"python": platform.python_version()}
    for package in (*PACKAGES, *packages):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if "torch" in versions:
        import torch

        if torch.version.cuda:
            versions["cuda"] = torch.version.cuda
    return versions


def _cpu():
    try:
        fields = dict(re.findall(r"^(\S[^\t:]*?)\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M))
    except OSError:
        return {"model": platform.processor() or platform.machine(), "variant": "", "features": []}
    model = re.sub(r"\((R|TM)\)|\bCPU\b|@.*|\b\d+-Core\b|Processor", "", fields.get("model name", platform.machine()))
    variant = AMD_FAMILIES.get(fields.get("cpu family", ""), "") if fields.get("vendor_id") == "AuthenticAMD" else ""
    flags = set(fields.get("flags", "").split())
    if "amx_bf16" in flags and not re.search(r"\d", model):  # Intel's hide it too, and AMX is what one asks for
        variant = "with AMX"
    if variant == "Zen3" and "avx512f" in flags:  # one family; Zen 3 has no AVX-512
        variant = "Zen4"
    return {
        "model": " ".join(model.split()),
        "variant": variant,
        "features": [f for f in CPU_FEATURES if f in flags],
    }


def _memory_gib():
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, AttributeError):
        return None


def _gpu():
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
        "compute_capability": f"{properties.major}.{properties.minor}",
    }


def _slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-").removeprefix("amd-")
