"""A small repository in a temporary folder: one notebook, its record, one page, one snippet, and nothing wrong with it."""

import json
import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest

from evidence import claims, freshness, machine, notebooks, pairs, records, runs

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported: see programs.py
ROOT = Path(__file__).resolve().parent.parent
MACHINE = {"name": "test-cpu-2core", "label": "Test CPU 2 cores", "cpu": "Test CPU", "cores": 2, "memory_gib": 8.0,
           "fingerprint": "0123abcd"}  # fmt: skip
SOFTWARE = {"python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0"}
SOURCE = """\
# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
# ---

# %% [markdown]
# # Tiny
#
# A notebook of the tests.

# %%
{install}

# %%
from evidence.claims import claim, start, table

start("tiny")

# %%
peak = 12.5
claim("peak-memory", "Peak memory of a step that the tests invent", peak, "GiB", kind="traced", at_most=13)

# %% tags=["measures"]
claim("step-speed", "Speed of that step against another one", 2.3, "x", kind="measured", at_least=1.1,
      spread={{"min": 0.1, "max": 0.2, "repeats": 5}})

# %%
table("by-batch", "Peak memory by batch size",
      {{"batch": "Batch size", "plain": "Plain, GiB", "checkpointed": "Checkpointed, GiB"}},
      [{{"batch": 1, "plain": 3.0, "checkpointed": 2.0}}, {{"batch": 2, "plain": 5.0, "checkpointed": None}}],
      kind="traced")

# %%
{closing}
"""
PAGE = """\
---
title: Tiny
description: A page of the tests.
---

# Tiny

The peak memory of the step is [[tiny:peak-memory]]. It runs at [[tiny:step-speed]] the speed of another one.

```python
--8<-- "guide/step.py:step"
```

```table
table: tiny:by-batch
columns: [batch, plain]
```

```chart
table: tiny:by-batch
mark: line
x: batch
y: [plain, checkpointed]
title: Peak memory by batch size
description: Line chart. Both lines rise.
```
"""
SNIPPET = "# --8<-- [start:step]\nprint('step')\n# --8<-- [end:step]\n"
AROUND = {  # the least of what every repository has
    "README.md": "# Tiny\n",
    "CONTRIBUTING.md": "# Contributing\n",
    "requirements/site.in": "ruff\n",
    "requirements/site.txt": "ruff==0.9.0 \\\n    --hash=sha256:aa\n",
    "tests/test_tiny.py": "def test_one():\n    assert len('a') == 1\n",
}


@pytest.fixture(autouse=True, scope="module")
def nothing_of_other_files():
    """What libraries keep for the whole process does not reach the next file, whichever that is: which files a worker gets depends on how
    fast the others are."""
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]  # an Accelerator of one kind asks each later one for the same
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.set_verbosity_warning()
        logging.warning_once.cache_clear()  # it says each thing once
    if "accelerate" in sys.modules:
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


class Repository:
    """Paths and short cuts into the temporary repository, which is the working directory."""

    source, notebook = Path("notebooks/tiny.py"), Path("notebooks/tiny.ipynb")
    record, exact = Path("results/tiny/test-cpu-2core.json"), Path("results/tiny/exact.json")
    page, snippet = Path("docs/index.md"), Path("snippets/guide/step.py")

    def edit(self, path, old, new):
        """Replaces the first `old` in a file, which must be there; returns its line."""
        text = Path(path).read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {path}"
        Path(path).write_text(text.replace(old, new, 1), encoding="utf-8")
        return text[: text.index(old)].count("\n") + 1

    def change_record(self, change, path=None):
        """Lets `change` alter the data of a record in place, as another run would have."""
        path = path or self.record
        data = json.loads(path.read_text())
        change(data)
        data["seal"] = records.seal(data)
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False))

    def record_of_another_machine(self, cpu="Other CPU", date=None, change=lambda data: None):
        """Adds a record as a machine with another processor would leave it; returns its path."""
        data = json.loads(self.record.read_text())
        name = f"{cpu.lower().replace(' ', '-')}-2core"
        data["machine"] |= {"name": name, "cpu": cpu, "label": f"{cpu} 2 cores", "fingerprint": "89abcdef"}
        data["date"] = date or data["date"]
        change(data)
        path = self.record.with_stem(name)
        path.write_text(json.dumps(data | {"seal": records.seal(data)}, indent=1, ensure_ascii=False))
        return path

    def add_to_page(self, text):
        """Appends to the page; returns the line where the addition begins."""
        before = self.page.read_text()
        self.page.write_text(f"{before}\n{text}\n")
        return before.count("\n") + 2

    def page_problems(self):
        from evidence.site import lint  # here, so that the tests of records need no part of the site

        return [str(problem) for problem in lint.check()]

    def notebook_problems(self):
        return [str(problem) for problem in pairs.check("tiny")]

    def files(self):
        """The content of every file, to see that nothing is lost and nothing left behind."""
        return {path.as_posix(): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def execute_here(name, notebook, say, go_on=False):
    """Stands in for the kernel, in a hundredth of its time."""
    outputs, scope = [], {}
    codes = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source != notebooks.CLOSING]
    with pytest.MonkeyPatch.context() as patch:
        if go_on:
            patch.setenv("EVIDENCE_GO_ON", "1")
        patch.setattr(claims, "_run", {"notebook": None, "names": set()})
        patch.setattr(claims, "_show", lambda shown: outputs.append(shown._repr_mimebundle_()))
        for count, cell in enumerate(codes, 1):
            raised = []
            try:
                exec(cell.source, scope)
            except Exception as error:
                if not go_on:
                    raise
                raised = [nbformat.v4.new_output("error", ename=type(error).__name__, evalue=str(error))]
            cell.execution_count = count
            cell.outputs = [nbformat.v4.new_output("display_data", data=data) for data in outputs] + raised
            outputs.clear()


@pytest.fixture
def quick_torch(tmp_path_factory, monkeypatch):
    """A torch for the processes that a test starts, without a GPU: evidence.machine asks for no more, and the real one takes
    two seconds to import."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "torch.py").write_text("class version:\n    cuda = None\n\n\nclass cuda:\n    is_available = bool\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]))


@pytest.fixture
def machine_of_the_tests(monkeypatch):
    monkeypatch.setattr(machine, "describe", lambda: dict(MACHINE))
    monkeypatch.setattr(machine, "software", lambda packages=(): dict(SOFTWARE))
    monkeypatch.setattr(claims, "_run", {"notebook": None, "names": set()})


@pytest.fixture
def repository(tmp_path, monkeypatch, machine_of_the_tests):
    kernel = runs._execute
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "_execute", execute_here)
    made = Repository()
    made.kernel = kernel
    for path in (made.source, made.page, made.snippet):
        path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", "pyproject.toml")
    made.source.write_text(SOURCE.format(install=notebooks.install_cell(), closing=notebooks.CLOSING))
    made.page.write_text(PAGE)
    made.snippet.write_text(SNIPPET)
    for path, text in AROUND.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)
    runs.record("tiny", say=lambda text: None)
    assert records.load(made.record) and records.load(made.exact)
    assert not freshness.stale(records.load(made.record))
    return made
