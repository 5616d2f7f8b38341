"""Prepares the session of a reader who runs a notebook alone: the versions that its figures come from, and a word while a
long cell runs. Called by the first cell of every notebook; imports nothing but the standard library.
"""

import os
import re
import subprocess
import sys
import threading
import time
from importlib import metadata

OURS = "performance-and-scalability"
TORCHAO = "0.18.0"  # the version of requirements/test.in
SAY_THEIR_VERSION = ("transformers", "accelerate", "peft", "torchao", "jax")  # as modules; apollo-torch 1.0.3 says 1.0
EVERY = 20  # seconds between two words on a cell that still runs

_replaced = set()  # modules in memory whose files pip has replaced since


class RestartNeeded(RuntimeError):
    """Packages in memory are not those on disk, and no figure may be made with them."""


def prepare(pins):
    """Installs each package of `pins`, {name: version}, that is not here in this version.

    Raises RestartNeeded where a package was imported before it was replaced. In a checkout of the project, and where
    `make record` or a test runs the notebook, packages stay as they are: a record states the versions that ran.
    """
    if has(OURS) and not _runs_for_the_project():
        _install(wanted(pins))
        _stop_if_stale(pins)
    if shell := readers_session():
        Progress(shell)


def wanted(pins):
    """`pins`, and where torchao is installed its version too: transformers and peft refuse an older one."""
    return pins | ({"torchao": TORCHAO} if has("torchao") else {})


def has(name):
    return bool(_version(name))


def missing(pins):
    """What pip is asked for: `name==version` of all that is not here in its version."""
    needs = [f"{name}=={version}" for name, version in pins.items() if _version(name) != version]
    return needs + ([] if has("matplotlib") else ["matplotlib"])


def _install(pins):
    needs = missing(pins)
    if not needs:
        return
    print("Installing", ", ".join(needs), flush=True)
    before = _installed()
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not install {', '.join(needs)}:\n{done.stderr[-2000:]}\n"
                           "Fix: check the network and run this cell again")  # fmt: skip
    _replaced.update(_loaded(before, _installed()))


def _loaded(before, after):
    """Modules in memory of the packages that are in another version, or gone, than before."""
    changed = {name for name, version in before.items() if after.get(name) != version}
    owners = metadata.packages_distributions() if changed else {}
    loaded = {module for module in owners if getattr(sys.modules.get(module), "__file__", None)}  # `google` has no file
    return {module for module in loaded if changed & set(map(_normal, owners[module]))}


def _stop_if_stale(pins):
    """What is in memory counts, also where pip ran before this cell."""
    there = {name: getattr(sys.modules.get(name), "__version__", None) for name in pins if name in SAY_THEIR_VERSION}
    stale = _replaced | {name for name, version in there.items() if version and version.split("+")[0] != pins[name]}
    if stale:
        names = ", ".join(sorted(stale))
        raise RestartNeeded(f"Restart the session, then Run all: Python has older files in memory, of {names}")


def _installed():
    """{package: version}; of two of one name, the first on the path counts."""
    return {_normal(found.name): found.version for found in reversed(list(metadata.distributions())) if found.name}


def _version(name):
    """Without a build's description: torchao 0.18.0+cpu is 0.18.0."""
    try:
        return metadata.version(name).split("+")[0]
    except metadata.PackageNotFoundError:
        return None


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def _runs_for_the_project():
    return "EVIDENCE_RUN" in os.environ


def readers_session():
    """The IPython of a reader who runs a notebook by hand, in Jupyter or Colab; None in a run of this project."""
    if _runs_for_the_project() or "IPython" not in sys.modules:
        return None
    return sys.modules["IPython"].get_ipython()


class Progress:
    """Below a cell that runs long, how long it has run. One for a session."""

    def __init__(self, shell, every=EVERY):
        self.every, self.over = every, threading.Event()
        if getattr(shell, "evidence_progress", None) is None:
            shell.evidence_progress = self
            shell.events.register("pre_run_cell", self.begin)
            shell.events.register("post_run_cell", self.end)

    def begin(self, info=None):
        self.over = threading.Event()
        threading.Thread(target=self._tell, args=(self.over,), daemon=True, name="progress").start()

    def end(self, result=None):
        self.over.set()

    def _tell(self, over):
        started = time.monotonic()
        while not over.wait(self.every):
            print(f"\rThis cell has run for {time.monotonic() - started:.0f} s", end="", file=sys.stderr, flush=True)
