"""The small repository of the tests as pages: a text rendered as on a page, records of more machines, and the whole site."""

import os
import re
import shutil

import built
import markdown
from bs4 import BeautifulSoup
from built import ROOT

from evidence.site import fences

CHART = {
    "table": "tiny:by-batch",
    "mark": "line",
    "x": "batch",
    "y": "[plain, checkpointed]",
    "title": "Peak memory",
    "description": "Both <lines> 'rise\".",
}
GPU = {"name": "nvidia-x", "label": "NVIDIA X", "gpu": "NVIDIA X", "gpu_memory_gib": 80.0}


def render(text, page="index.md", **settings):
    custom = [
        {"name": name, "class": name, "format": getattr(fences, f"{name}_fence")}
        for name in ("table", "chart", "timeline", "diagram", "ledger", "machines")
    ]
    extensions = ["evidence.site.pages", "attr_list", "tables", "toc", "pymdownx.superfences", "pymdownx.details"]
    configs = {"evidence.site.pages": {"page": page} | settings, "pymdownx.superfences": {"custom_fences": custom}}
    html = markdown.Markdown(extensions=extensions, extension_configs=configs).convert(text)
    return BeautifulSoup(html, "html.parser")


def block(language, **keys):
    return f"```{language}\n" + "".join(f"{key}: {value}\n" for key, value in keys.items()) + "```"


def shown(element):
    """What a reader sees of an element before choosing a machine."""
    for hidden in element.select("[hidden]"):
        hidden.extract()
    return element.text


def on(element, machine):
    """What a reader sees of an element after choosing a machine."""
    return [choice.text for choice in element.select("[data-on]") if machine in choice["data-on"].split()]


def speed(value):
    """A change of a record: another speed, or None where it does not apply to the machine."""

    def change(data):
        claim = data["claims"]["step-speed"]
        if value is None:
            del claim["value"]
            claim["because"] = "this machine cannot"
        else:
            claim["value"] = value

    return change


def add_gpu(repository, change=None):
    """Adds a record of a GPU, from long ago; returns its path."""

    def changed(data):
        data["machine"] |= GPU
        data["software"]["cuda"] = "13.0"
        (change or speed(7.5))(data)

    path = repository.record_of_another_machine(date="2026-01-01", change=changed)
    return path.rename(path.with_stem(GPU["name"]))


def add_prediction(data):
    """A change of the exact record: the speed of a step on three GPUs."""
    band = {"value": 1.9, "low": 1.62, "high": 2.3}
    on = {
        "rtx-4090": {"label": "RTX 4090"} | band,
        "t4": {"label": "T4", "value": 1.1, "low": 0.9, "high": 1.3},
        "v100": {"label": "V100", "because": "it is bound by launches"},
    }
    data["claims"]["bf16-speed"] = {
        "sentence": "Speed of a step in bf16 against fp32",
        "kind": "predicted",
        "unit": "x",
        "at_least": 0.9,
        "on": on,
    }


def add_table(data):
    """A change of a record: a table that the machine measured."""
    columns = {"batch": "Batch size", "plain": "Plain, GiB", "checkpointed": "Checkpointed, GiB"}
    value = 30.5 if "gpu" in data["machine"] else 3.0
    rows = [[1, value, 2.0], [2, 5.0, None]]
    data["tables"]["by-size"] = {"title": "Peak by size", "kind": "measured", "columns": columns, "rows": rows}


def make_site(pages="  - Overview: index.md\n"):
    """Gives the small repository our theme, assets, hook and settings: a site with one notebook and these pages."""
    for name in ("evidence", "dryrun", "theme"):
        if not os.path.lexists(name):
            os.symlink(ROOT / name, name)
    shutil.copytree(ROOT / "docs" / "assets", "docs/assets", dirs_exist_ok=True)
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = f"nav:\n{pages}  - Notebooks:\n      - Tiny: notebooks/tiny.ipynb\n\n"
    settings, found = re.subn(r"^nav:\n(?:[ #-].*\n|\n)+", lambda _: nav, text, flags=re.M)
    assert found == 1
    with open("mkdocs.yml", "w", encoding="utf-8") as file:
        file.write(settings)


PAGE = """---
title: Tiny
---

# Tiny

It takes [[tiny:peak-memory]] and runs at [[tiny:step-speed]] the speed, on a CPU [[tiny:step-speed@cpu]].

```table
table: tiny:by-size
```

{chart}

## Use it {{ #use }}

```python
--8<-- "guide/step.py:step"
```

## Error messages {{ #errors }}

A sentence of the tests about a quagmire.
"""
RAW = """# Raw

Markdown lets HTML through.

<script>window.injected = true</script>
<style>body { background: red }</style>
<p onclick="window.injected = true" id="clicked">A paragraph</p>
"""
SORTED = """# Sorted

<div class="sortable" markdown>

| Method | Time of a step |
|---|---|
| Half the time | 0.5x the time |
| None | not tried |
| Thrice the speed | 3x the speed |
| Slower | 1.25x the time |

</div>
"""


def build_two(repository, folder):
    """Builds a site with figures of a CPU and a GPU, a page whose content brings a script, and a sortable table."""
    repository.change_record(add_table)
    repository.change_record(add_prediction, repository.exact)
    both = add_gpu(repository, lambda data: (speed(7.5)(data), add_table(data)))
    assert "30.5" in both.read_text()
    chart = block("chart", **CHART | {"table": "tiny:by-size", "description": "Both rise."})
    repository.page.write_text(PAGE.format(chart=chart))
    repository.page.with_name("raw.md").write_text(RAW)
    repository.page.with_name("predicted.md").write_text("# Predicted\n\nIt runs at [[tiny:bf16-speed]] the speed.\n")
    repository.page.with_name("sorted.md").write_text(SORTED)
    make_site("  - Overview: index.md\n  - Raw: raw.md\n  - Predicted: predicted.md\n  - Sorted: sorted.md\n")
    run = built.build(folder, os.getcwd())
    assert run.returncode == 0, run.stdout + run.stderr
    return folder
