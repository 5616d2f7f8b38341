"""Says what this machine and its software are. Nothing here identifies a person or a host."""

import hashlib
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "transformers", "accelerate")
CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")


def describe():
    """This machine: name, label, cpu, cores, memory_gib, cpu_features, fingerprint; with an accelerator also gpu,
    gpu_memory_gib and compute_capability.

    The name is made of the hardware, so two machines of one kind share it. The fingerprint tells kinds apart that share a
    name; it is a hash of hardware facts that thousands of machines have in common.
    """
    cpu = _cpu()
    machine = {
        "cpu": cpu["name"],
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "cpu_features": cpu["features"],
    }
    machine |= _gpu()
    facts = {**machine, "memory_gib": round(machine["memory_gib"] or 0), "details": cpu["details"]}
    fingerprint = hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:8]
    return {"name": _place() + _name(machine), "label": _label(machine), **machine, "fingerprint": fingerprint}


def _place():
    """Where the same hardware runs otherwise: in Colab, and under Windows in WSL, which shares its memory."""
    if "COLAB_RELEASE_TAG" in os.environ:
        return "colab-"
    return "wsl-" if "microsoft" in platform.release().lower() else ""


def describes(machine):
    """What of a machine's entry in a record does not fit the rest of it, or None."""
    name = _name(machine)
    if not re.fullmatch(rf"(colab-|wsl-)?{re.escape(name)}(-[0-9a-f]{{4}})?", machine["name"]):
        return f"its name is {machine['name']}, and its hardware is called {name}"
    if machine["label"] != _label(machine):
        return f"its label is {machine['label']}, and its hardware is called {_label(machine)}"
    return None


def _name(machine):
    return _slug(machine["gpu"]) if "gpu" in machine else f"{_slug(machine['cpu'])}-{machine['cores']}core"


def _label(machine):
    return machine.get("gpu") or f"{machine['cpu']} {machine['cores']} cores"


def software(packages=()):
    """Versions: python, torch, transformers, accelerate, `packages` (those that are installed), and where there is a GPU CUDA or
    ROCm, its driver and its highest clock: a build of torch with CUDA on a machine without one runs none of it. A module that is imported says its own
    version: pip may have replaced its files since."""
    versions = {"python": platform.python_version()}
    for package in (*PACKAGES, *packages):
        loaded = getattr(sys.modules.get(package.replace("-", "_")), "__version__", None)
        try:
            version = str(loaded or metadata.version(package))
        except metadata.PackageNotFoundError:
            continue
        versions[package] = re.match(r"\d[\w.+!]*|", version)[0] or metadata.version(
            package
        )  # without a build's description
    if "torch" in versions and _gpu():
        import torch

        if torch.version.cuda:
            versions |= {"cuda": torch.version.cuda} | _driver()
        if getattr(torch.version, "hip", None):
            versions["rocm"] = torch.version.hip
    return versions


def _driver():
    """{"driver": ..., "clock": ...} of the first GPU, as nvidia-smi says them; {} where it says nothing."""
    asked = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = re.fullmatch(r"([\d.]+), (\d+) MHz\s*", done.stdout)
    return {"driver": found[1], "clock": f"{found[2]}MHz"} if found else {}


def native_bf16():
    """Whether bf16 is an instruction here and not an emulation: compute capability 8.0, or without a GPU AVX-512 or AMX."""
    gpu = _gpu()
    if gpu:
        return float(gpu["compute_capability"]) >= 8.0
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(_cpu()["features"])


def _cpu():
    """Name, the features of CPU_FEATURES, and what else tells two kinds apart."""
    try:
        fields = dict(re.findall(r"^(\S[^\t:]*?)\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M))
    except OSError:
        return {"name": _cpu_without_proc(), "features": [], "details": platform.machine()}
    model = _short(fields.get("model name", platform.machine()))
    flags = set(fields.get("flags", "").split())
    features = [feature for feature in CPU_FEATURES if feature in flags]
    details = [fields.get(key) for key in ("cpu family", "model", "stepping", "cache size")]
    details += [fields[key] for key in ("CPU implementer", "CPU part") if key in fields]  # all that Arm says of itself
    name = " ".join(f"{model} {_variant(fields, flags, model)}".split())
    return {"name": name, "features": features, "details": details}


def _short(name):
    """A processor's name without trade marks, clock and count of cores."""
    return " ".join(re.sub(r"\((R|TM)\)|\bCPU\b|@.*|\b\d+-Core\b|Processor", "", name).split())


def _variant(fields, flags, model):
    """The generation, which the virtual machines of a cloud hide."""
    if fields.get("vendor_id") == "AuthenticAMD":
        family, number = fields.get("cpu family"), int(fields.get("model", 0))
        if family == "23":
            return "Zen2" if number >= 0x30 else "Zen1"
        if family == "25":  # one family; Zen 3 has no AVX-512
            return "Zen4" if "avx512f" in flags else "Zen3"
        return {"26": "Zen5"}.get(family, "")
    return "with AMX" if "amx_bf16" in flags and not re.search(r"\d", model) else ""


def _cpu_without_proc():
    """On macOS the chip's name; platform knows only `arm`."""
    return _short(_sysctl("machdep.cpu.brand_string")) or platform.processor() or platform.machine()


def _sysctl(name):
    """What macOS says of its hardware; nothing elsewhere."""
    if sys.platform != "darwin":
        return ""
    return subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True).stdout.strip()


def _memory_gib():
    if said := _sysctl("hw.memsize"):
        return round(int(said) / 2**30, 1)
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
