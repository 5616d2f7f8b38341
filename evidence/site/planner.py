"""What the page your-model fetches: Python for the browser, `dryrun` without its profiles, the profiles, and what it can be asked."""

import io
import json
import re
import sys
import zipfile
from pathlib import Path

import dryrun
from dryrun import hardware, models, profiles, web
from dryrun.formats import WEIGHT_BYTES
from dryrun.inference import UNPREDICTED

PYTHON = Path(sys.prefix) / "pyodide" / "node_modules" / "pyodide"  # `make site` puts it there
NEEDED = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
SOLD_MOST = {"a100": "a100-sxm4-80", "v100": "v100-sxm2-32", "strixhalo": "strix-halo"}  # which of several a search takes where only the chip is named
SAME_DATE = (2020, 1, 1, 0, 0, 0)  # so that a build can be repeated


def files():
    """(address, bytes) of each."""
    yield "planner/choices.json", json.dumps(choices(), separators=(",", ":")).encode()
    yield "planner/dryrun.zip", library()
    for name in profiles.files():
        file = name + profiles.SUFFIX
        yield f"planner/profiles/{file}", (profiles.FOLDER / file).read_bytes()
    for name in NEEDED:
        if not (PYTHON / name).is_file():
            raise FileNotFoundError(f"{PYTHON / name}: Python for the browser is not installed. Fix: make install")
        yield f"planner/python/{name}", (PYTHON / name).read_bytes()


def choices():
    """Lists of models and GPUs, formats of weights, and networks. hub: the model on the Hub, where its configuration is from there."""
    found = web.choices()
    for one in found["models"]:
        one["hub"] = (re.match(r"https://huggingface.co/([^/]+/[^/]+)/", models.addresses()[one["name"]]) or ("", ""))[1]
    return found | {
        "spellings": spellings([one["name"] for one in found["models"]], [one["name"] for one in found["gpus"]]),
        "weights": [name for name in WEIGHT_BYTES if name not in UNPREDICTED],
        "networks": [name for name, link in hardware.LINKS.items() if "GbE" in name or "InfiniBand" in name],
    }


def spellings(of_models, of_gpus):
    """{"models": {spelling: name}, "gpus": ...}, in small letters and digits alone: by them a search knows a model and a GPU in a question."""
    offered, spelled = set(of_models), {}
    for name in models.names():
        spelled[name] = models.known(name)
        spelled[models.addresses()[models.known(name)].partition("/blob/")[0].rpartition("/")[2]] = models.known(name)
    found = {re.sub(r"[^a-z0-9.]", "", spelling.lower()): name for spelling, name in spelled.items() if name in offered}
    gpus = SOLD_MOST | hardware.NAMES
    return {"models": found, "gpus": {spelling: key for spelling, key in gpus.items() if key in of_gpus}}


def library():
    """The package as a zip file."""
    folder, packed = Path(dryrun.__file__).parent, io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as opened:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".json") and path.is_file():
                opened.writestr(zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), SAME_DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()
