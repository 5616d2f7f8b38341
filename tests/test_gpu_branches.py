"""What a notebook does on a GPU is run without one: the cells as they are, with torch's questions about the GPU answered as a T4 would, the
device exchanged for the CPU, and sizes that a CPU bears. It shows that the branch runs, and nothing about speed.
"""

from types import SimpleNamespace

import bitsandbytes  # noqa: F401, before torch says that there is a GPU: it chooses its kernels at its import
import jupytext
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import pyplot
from programs import ROOT

from evidence import claims, machine

T4 = SimpleNamespace(name="Tesla T4", total_memory=15 * 2**30, major=7, minor=5)
SMALLER = {
    'torch.device("cuda" if GPU else "cpu")': 'torch.device("cpu")',
    'RAN, CONFIG = "Qwen3-1.7B", QWEN': 'RAN, CONFIG = "Qwen3-1.7B", TINY',
    "vocab_size=8000, hidden_size=512": "vocab_size=2000, hidden_size=64",
    "(512, 64) if GPU": "(16, 3) if GPU",
    "4096 if GPU": "64 if GPU",
    "HEADS = 32 if GPU": "HEADS = 2 if GPU",
    "(8192, (512, 2048, 8192)) if GPU": "(128, (16, 32, 64)) if GPU",
    "(2**30 if GPU": "(2**20 if GPU",
    'STATIC | {"compile_config": COMPILED}': 'STATIC | {"disable_compile": True}',  # a CUDA graph needs CUDA
}


@pytest.fixture
def a_t4(monkeypatch):
    """torch answers as on a T4, where it is only asked."""
    for name, answer in (
        ("is_available", True), ("device_count", 1), ("get_device_properties", T4), ("max_memory_allocated", 2**24),
        ("reset_peak_memory_stats", None), ("synchronize", None), ("get_device_capability", (7, 5)),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *given, answer=answer, **options: answer)
    monkeypatch.setattr(machine, "_driver", dict)
    monkeypatch.setenv("EVIDENCE_GO_ON", "1")  # bounds are of a real GPU
    monkeypatch.setenv("EVIDENCE_RUN", "generate_speed")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    InteractiveShell.clear_instance()  # matplotlib's formats made one, by which evidence knows a reader at work


def test_inference_measures_every_way_every_batch_and_every_width_on_a_gpu(a_t4, monkeypatch):
    monkeypatch.setattr(pyplot, "show", lambda: None)
    notebook = jupytext.read(ROOT / "notebooks" / "generate_speed.py")
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    first = next(number for number, source in enumerate(cells) if "start(" in source)  # behind the installation
    code = "\n".join(cells[first:-1])
    for large, small in SMALLER.items():
        assert code.count(large) == 1, large
        code = code.replace(large, small)
    values = {}
    exec(compile(code, "generate_speed", "exec"), values)
    assert values["GPU"] and values["RAN"] == "Qwen3-1.7B" and values["HALF"] == torch.float16
    left = claims._run["left"]
    rows = {name: len(data["rows"]) for (kind, name), data in left.items() if kind == "table"}
    assert rows == {"run-ways": 9, "run-bits": 3, "run-kernels": len(values["kernels"]), "run-prompts": 3} and rows["run-kernels"] >= 2
    made = {name: data for (kind, name), data in left.items() if kind == "claim"}
    assert len(made) == 14 and all("value" in claim for claim in made.values()), "a GPU leaves no figure out"
