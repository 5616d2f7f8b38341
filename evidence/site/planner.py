"""What the page your-model fetches: Python for the browser, `dryrun` without its profiles, the profiles, what it can be asked, and the answers to what is
asked first."""

import gzip
import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path

import dryrun
from dryrun.answer.inference import UNPREDICTED
from dryrun.door import web
from dryrun.models import models
from dryrun.step import profiles
from dryrun.tables import gpu_files, hardware
from dryrun.tables.formats import WEIGHT_BYTES

from . import node

PYTHON = node.MODULES / "pyodide"
NEEDED = ("pyodide.mjs", "pyodide.asm.mjs")
WASM = "pyodide.asm.wasm"  # packed by gzip here, because not every host does it; the page unpacks it
LOCK = "pyodide-lock.json"
LIBRARY = "python_stdlib.zip"
COMPILER = Path(__file__).with_name("compile_modules.mjs")
COMPILED = node.MODULES.parent / "compiled"  # compiled before, by what they were made from
# Of the standard library: what tests, debugs, talks to terminals, processes and networks, and encodings but these.
LEFT_OUT = {
    "_pyrepl", "unittest", "xml", "xmlrpc", "http", "html", "wsgiref", "pdb", "doctest", "pydoc", "pydoc_data", "multiprocessing", "imaplib", "smtplib",
    "mailbox", "ctypes", "tarfile", "optparse", "ftplib", "poplib", "pickletools", "turtle", "curses", "sqlite3", "dbm", "configparser", "cProfile", "pstats",
    "email", "urllib", "_pyio", "ipaddress", "platform", "bdb", "calendar", "plistlib", "trace", "tomllib", "uuid", "gzip", "modulefinder", "mimetypes",
    "tracemalloc", "wave", "socketserver", "stringprep", "compileall", "profile", "symtable", "csv", "cmd", "fileinput", "shlex", "pyclbr", "tabnanny", "code",
}  # fmt: skip
KEPT = {"email/__init__.py", "urllib/__init__.py", "urllib/parse.py"}
ENCODINGS = {"__init__", "aliases", "ascii", "cp437", "idna", "latin_1", "utf_8"}
SOLD_MOST = {"a100": "a100-sxm4-80", "v100": "v100-sxm2-32", "strixhalo": "strix-halo"}  # which of several a search takes where only the chip is named
FIRST = "qwen3-8b --gpu rtx-4090"  # of the form in docs/your-model.md
SAME_DATE = (2020, 1, 1, 0, 0, 0)  # so that a build can be repeated


def files():
    """(address, bytes) of each."""
    yield "planner/choices.json", json.dumps(choices(), separators=(",", ":")).encode()
    yield "planner/first.json", json.dumps(first_answers(), separators=(",", ":")).encode()
    yield "planner/dryrun.zip", compiled(library())
    for name in profiles.files():
        file = name + profiles.SUFFIX
        yield f"planner/profiles/{file}", (profiles.FOLDER / file).read_bytes()
    for name in NEEDED:
        if not (PYTHON / name).is_file():
            raise FileNotFoundError(f"{PYTHON / name}: Python for the browser is not installed. Fix: {node.INSTALL}")
        yield f"planner/python/{name}", (PYTHON / name).read_bytes()
    yield f"planner/python/{WASM}.packed", gzip.compress((PYTHON / WASM).read_bytes(), mtime=0)
    yield f"planner/python/{LOCK}", json.dumps(json.loads((PYTHON / LOCK).read_text("utf-8")) | {"packages": {}}).encode()
    yield f"planner/python/{LIBRARY}", compiled(standard_library())


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


def first_answers():
    """What the page shows before Python is there, where a question is asked as it stands in the form: of each task, for the model and the GPU of the form."""
    asked = [f"{question} --checkpointing --largest-batch".split() for question in (f"train {FIRST} --lora", f"train {FIRST} --qlora", f"train {FIRST} --dtype mixed")]
    return [{"asked": words, "model": web.named(words[1]), "answer": web.ask(words)} for words in (*asked, f"infer {FIRST}".split())]


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
        accelerators = gpu_files.PACKED.relative_to(folder.parent).as_posix()
        opened.writestr(zipfile.ZipInfo(accelerators, SAME_DATE), json.dumps(gpu_files.read(), separators=(",", ":")), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def standard_library():
    """That of the browser's Python, as a zip file, without what is `LEFT_OUT`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(PYTHON / LIBRARY) as whole, zipfile.ZipFile(packed, "w") as part:
        for entry in whole.infolist():
            package, _, module = entry.filename.removesuffix(".py").partition("/")
            if (package not in LEFT_OUT or entry.filename in KEPT) and (package != "encodings" or module in ENCODINGS):
                part.writestr(zipfile.ZipInfo(entry.filename, SAME_DATE), whole.read(entry))
    return packed.getvalue()


def compiled(packed):
    """A zip file with its modules compiled by the browser's Python, which then starts in a third of the time."""
    name = hashlib.sha256(packed + COMPILER.read_bytes() + (PYTHON / "package.json").read_bytes()).hexdigest()[:32]
    kept = COMPILED / f"{name}.zip"
    if not kept.is_file():
        COMPILED.mkdir(parents=True, exist_ok=True)
        sources, partial = kept.with_suffix(f".{os.getpid()}.sources"), kept.with_suffix(f".{os.getpid()}")
        sources.write_bytes(packed)
        try:
            node.run(COMPILER, PYTHON, sources, partial)
            partial.replace(kept)
        finally:
            sources.unlink()
    return kept.read_bytes()
