"""A record names the machine and its software so that a reader can compare, and nothing that names a person or a host."""

import getpass
import json
import platform
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from evidence import machine, schema
from evidence.site import context

CPUINFO = """\
processor\t: 0
vendor_id\t: {vendor}
cpu family\t: {family}
model name\t: {name}
flags\t\t: fpu avx2 avx512f avx512_bf16 sse

processor\t: 1
"""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)


@pytest.fixture
def cpu(monkeypatch):
    """A machine of four cores without a GPU; call it with the processor's name."""

    def set_cpu(name, vendor="GenuineIntel", family="6"):
        text = CPUINFO.format(name=name, vendor=vendor, family=family)
        monkeypatch.setattr(Path, "read_text", lambda path: text)
        monkeypatch.setattr(machine, "_gpu", dict)
        monkeypatch.setattr("os.cpu_count", lambda: 4)
        return machine.describe()

    return set_cpu


@pytest.mark.parametrize(
    ("name", "vendor", "family", "expected", "label"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "GenuineIntel", "6", "intel-xeon-4core", "Intel Xeon 4 cores"),
        ("AMD EPYC", "AuthenticAMD", "26", "epyc-zen5-4core", "AMD EPYC Zen5 4 cores"),
        ("AMD EPYC", "AuthenticAMD", "25", "epyc-zen4-4core", "AMD EPYC Zen4 4 cores"),
        ("AMD EPYC 9654 96-Core Processor", "AuthenticAMD", "99", "epyc-9654-4core", "AMD EPYC 9654 4 cores"),
    ],
)  # fmt: skip
def test_a_cpu_is_named_by_its_family_and_its_cores(cpu, name, vendor, family, expected, label):
    here = cpu(name, vendor, family)
    assert (here["name"], here["label"], here["cores"]) == (expected, label, 4)
    assert here["cpu_features"] == ["avx2", "avx512f", "avx512_bf16"]
    assert "gpu" not in here


def test_zen_3_is_told_from_zen_4_of_the_same_family_by_its_instructions(cpu, monkeypatch):
    monkeypatch.setattr(f"{__name__}.CPUINFO", CPUINFO.replace("avx512f", "sse").replace("avx512_bf16", "sse2"))
    assert cpu("AMD EPYC", "AuthenticAMD", "25")["name"] == "epyc-zen3-4core"


def test_a_xeon_that_hides_its_model_is_named_by_amx(cpu, monkeypatch):
    monkeypatch.setattr(f"{__name__}.CPUINFO", CPUINFO.replace("avx512_bf16", "avx512_bf16 amx_bf16"))
    here = cpu("Intel(R) Xeon(R) Processor")
    assert (here["name"], here["label"]) == ("intel-xeon-with-amx-4core", "Intel Xeon with AMX 4 cores")
    assert cpu("Intel(R) Xeon(R) Platinum 8488C")["name"] == "intel-xeon-platinum-8488c-4core"


def test_a_gpu_names_the_machine(monkeypatch):
    import torch

    properties = SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    here = machine.describe()
    assert (here["name"], here["label"]) == ("nvidia-h200", "NVIDIA H200")
    assert (here["gpu"], here["gpu_memory_gib"], here["compute_capability"]) == ("NVIDIA H200", 140.0, "9.0")


def test_colab_is_told_from_the_same_hardware_elsewhere(cpu, monkeypatch):
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release")
    assert cpu("Intel(R) Xeon(R)")["name"] == "colab-intel-xeon-4core"


def test_two_kinds_of_one_name_have_two_fingerprints(cpu, monkeypatch):
    one = cpu("AMD EPYC", "AuthenticAMD", "25")
    assert cpu("AMD EPYC", "AuthenticAMD", "25")["fingerprint"] == one["fingerprint"]
    monkeypatch.setattr(f"{__name__}.CPUINFO", CPUINFO.replace("flags", "cache size\t: 512 KB\nflags"))
    other = cpu("AMD EPYC", "AuthenticAMD", "25")
    assert other["name"] == one["name"] and other["fingerprint"] != one["fingerprint"]


@pytest.mark.parametrize(("number", "name"), [("1", "epyc-zen1-4core"), ("49", "epyc-zen2-4core")])
def test_zen_1_is_told_from_zen_2_of_the_same_family_by_its_model(cpu, monkeypatch, number, name):
    monkeypatch.setattr(f"{__name__}.CPUINFO", CPUINFO.replace("cpu family", f"model\t\t: {number}\ncpu family"))
    assert cpu("AMD EPYC", "AuthenticAMD", "23")["name"] == name


def test_wsl_is_told_from_the_same_hardware_elsewhere(cpu, monkeypatch):
    assert cpu("Intel(R) Core(TM) i7-13700K")["name"] == "intel-core-i7-13700k-4core"
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    here = cpu("Intel(R) Core(TM) i7-13700K")
    assert here["name"] == "wsl-intel-core-i7-13700k-4core" and machine.describes(here) is None


def test_two_arm_processors_of_no_name_have_two_fingerprints(cpu, monkeypatch):
    arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: {part}\n"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    made = []
    for part in ("0xd40", "0xd4f"):
        monkeypatch.setattr(f"{__name__}.CPUINFO", arm.replace("{part}", part))
        made.append(cpu("none"))
    assert [here["name"] for here in made] == ["aarch64-4core"] * 2
    assert made[0]["fingerprint"] != made[1]["fingerprint"]


@pytest.mark.parametrize(
    ("brand", "name"),
    [
        ("Apple M2 Pro", "apple-m2-pro-10core"),
        ("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", "intel-core-i7-9750h-10core"),
    ],
)
def test_a_mac_is_named_by_its_chip(monkeypatch, brand, name):
    def missing(path):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(machine, "_gpu", dict)
    monkeypatch.setattr("os.cpu_count", lambda: 10)
    monkeypatch.setattr(sys, "platform", "darwin")
    said = {"machdep.cpu.brand_string": brand, "hw.memsize": str(16 * 2**30)}
    monkeypatch.setattr(machine.subprocess, "run", lambda asked, **_: SimpleNamespace(stdout=f"{said[asked[-1]]}\n"))
    here = machine.describe()
    assert (here["name"], here["memory_gib"]) == (name, 16.0)
    assert machine.describes(here) is None


def test_a_machine_that_does_not_fit_its_own_name_is_refused():
    here = machine.describe()
    assert machine.describes(here) is None
    assert machine.describes(here | {"name": "colab-" + here["name"] + "-0a1b"}) is None
    assert "its name is toaster, and its hardware is called" in machine.describes(here | {"name": "toaster"})
    assert "its label is Toaster" in machine.describes(here | {"label": "Toaster"})


def test_a_machine_without_proc_is_still_described(monkeypatch):
    def missing(path):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    here = machine.describe()
    assert here["cpu"] == (platform.processor() or platform.machine()) and here["cpu_features"] == []


@pytest.mark.parametrize("gpu", [True, False])
def test_a_build_with_cuda_is_the_software_of_a_gpu_and_not_of_a_machine_without_one(monkeypatch, gpu):
    import torch

    properties = SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    versions = machine.software()
    assert versions.get("cuda") == ("13.0" if gpu else None)
    assert list(schema._wrong_machine(machine.describe(), versions)) == []  # a record of this run is one


@pytest.mark.parametrize(
    ("printed", "said"),
    [("580.159.04, 1980 MHz", {"driver": "580.159.04", "clock": "1980MHz"}), ("[N/A], [N/A]", {}), ("No devices were found", {})],
)
def test_the_software_of_a_gpu_names_its_driver_and_its_highest_clock(monkeypatch, tmp_path, printed, said):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{printed}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine._driver() == said


def test_nothing_names_a_person_or_a_host(monkeypatch, tmp_path):
    for module, name in ((socket, "gethostname"), (socket, "getfqdn"), (platform, "node"), (getpass, "getuser")):
        monkeypatch.setattr(module, name, lambda: "secret-name")
    monkeypatch.setenv("HOME", str(tmp_path / "secret-name"))
    monkeypatch.setenv("USER", "secret-name")
    said = json.dumps([machine.describe(), machine.software()])
    assert "secret-name" not in said


def test_the_software_is_what_is_installed(monkeypatch):
    import torch

    versions = machine.software()
    assert versions["python"] == sys.version.split()[0] and versions["torch"] == torch.__version__
    assert ("cuda" in versions) == ("gpu" in machine.describe() and bool(torch.version.cuda))
    monkeypatch.setattr(machine, "PACKAGES", ("no-such-package",))
    assert list(machine.software()) == ["python"]


def test_two_kinds_of_machine_of_one_name_are_told_apart_on_a_page():
    def record(name):
        return SimpleNamespace(machine=name, date="2026-01-01", data={"machine": {"label": "Test CPU 2 cores"}})

    shown = context.machines({"one": [record("test-cpu-2core")], "two": [record("test-cpu-2core")], "three": [record("test-cpu-2core-89ab")]})
    assert shown == {"test-cpu-2core": "Test CPU 2 cores", "test-cpu-2core-89ab": "Test CPU 2 cores (89ab)"}
