"""Programs that building the site takes from npm: Python for the browser and esbuild (requirements/pyodide). `make site` installs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULES = Path(sys.prefix) / "pyodide" / "node_modules"
INSTALL = "make install"


def program():
    """The path of node: the machine's, else that of the venv."""
    found = shutil.which("node", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.prefix) / "bin")]))
    if not found:
        raise FileNotFoundError(f"node is not installed. Fix: {INSTALL}")
    return found


def run(script, *arguments):
    """Runs a script with node. RuntimeError with what it said where it fails."""
    found = program()
    if not Path(script).is_file():
        raise FileNotFoundError(f"{script} is not installed. Fix: {INSTALL}")
    done = subprocess.run([found, script, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr.strip()[-2000:]}")
