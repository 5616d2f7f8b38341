"""The site as `make site` builds it, and a browser: made once for all tests of a process."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from evidence.browser import Host, chromium

ROOT = Path(__file__).resolve().parent.parent
_open = ExitStack()
atexit.register(_open.close)


@cache
def site():
    """The folder of the built site."""
    folder = Path(tempfile.mkdtemp(prefix="site-"))
    _open.callback(shutil.rmtree, folder, ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("SITE_URL", "MIKE_DOCS_VERSION")}
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", folder],
        cwd=ROOT,
        env=environment | {"SOURCE_DATE_EPOCH": "0", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, f"mkdocs build --strict failed\n{run.stdout}{run.stderr}"
    return folder


@cache
def host():
    """The built site on a host of its own, below the path of its address."""
    return _open.enter_context(Host(site()))


@cache
def browser():
    return _open.enter_context(chromium())
