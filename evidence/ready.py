"""Whether this machine can run `make test`, asked before anything is downloaded. Imports nothing but the standard library.

`python -m evidence.ready` looks for a browser and for room on the disk, with `all` for that of `make test-all`; with `fetch`, once
playwright is installed, it brings the browser where there is none.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from .problems import Problem
from .site.browser import INSTALL, found

ROOM = {"test": (4, 5), "test-all": (9, 15)}  # GB that .venv and the files of a run take
FROM = "https://cdn.playwright.dev"  # where `playwright install chromium` downloads from
SECONDS = 4


def check(command="test"):
    """Raises Problem where a run would fail after minutes for a reason that can be seen now."""
    _room(command)
    if not found(_own()) and not _answers(FROM):
        raise Problem("make test", f"there is no Chromium here, and {FROM} does not answer", INSTALL)


def fetch():
    """Brings playwright's own Chromium where the machine has none."""
    if found(_own()):
        return
    print("Downloading a Chromium for the tests of the built site: 170 MB")
    if subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"]).returncode:
        raise Problem("make test", "the download of Chromium failed (see above)", INSTALL)


def _own():
    """Playwright's own browser, where `playwright install` puts it."""
    homes = {"darwin": "Library/Caches/ms-playwright", "win32": "AppData/Local/ms-playwright"}
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folder = Path(given) if given else Path.home() / homes.get(sys.platform, ".cache/ms-playwright")
    return next(folder.glob("chromium*-*/*"), None)


def _room(command):
    here, scratch = Path.cwd(), Path(tempfile.gettempdir())
    environments, run = ROOM[command]
    needs = {here: 0 if Path(".venv/test.stamp").exists() else environments, scratch: run}
    if here.stat().st_dev == scratch.stat().st_dev:
        needs = {scratch: sum(needs.values())}
    for folder, needed in needs.items():
        free = shutil.disk_usage(folder).free / 1e9
        if free < needed:
            what = f"{folder} has {free:.0f} GB free, and the run needs {needed}"
            raise Problem(f"make {command}", what, f"make room, or TMPDIR=/a/larger/disk make {command}")


def _answers(address):
    try:
        urllib.request.urlopen(address, timeout=SECONDS).close()
    except urllib.error.HTTPError:
        return True  # it answers
    except (OSError, ValueError):
        return False
    return True


def main(arguments=None):
    asked = sys.argv[1:] if arguments is None else arguments
    try:
        fetch() if asked == ["fetch"] else check("test-all" if asked == ["all"] else "test")
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
