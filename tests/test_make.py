"""The Makefile: its two commands, and what it says to a machine that cannot run them."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

import evidence.ready

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments, folder=ROOT, **environment):
    kept = {
        key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
    }
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=kept | environment, capture_output=True, text=True, timeout=120
    )


def test_help_lists_every_command():
    listed = make("help").stdout
    for command in ("serve", "site", "check", "test", "test-all", "proved", "notebooks", "record", "verify", "help"):
        assert f"make {command}" in listed


def test_a_python_that_is_too_old_is_told_which_one_is_needed(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "site.txt").touch()
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    done = make("serve", folder=tmp_path, PYTHON=str(old))
    assert done.returncode != 0
    assert "Python 3.9.2, and this project needs Python 3.11 or later. Fix: name one, PYTHON=" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_failed_download_says_that_the_same_command_goes_on(tmp_path):
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "requirements").mkdir()
    python = tmp_path / ".venv" / "bin" / "python"  # to make one takes longer than all the rest
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "requirements" / "site.txt").write_text("no-such-package==1.0 --hash=sha256:" + "0" * 64 + "\n")
    done = make("site", folder=tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS="", PIP_EXTRA_INDEX_URL="")
    assert done.returncode != 0
    assert "the download failed (see above). Fix: check the network and run the same command again" in done.stderr
    assert not (tmp_path / ".venv" / "site.stamp").exists()


def test_record_uses_the_python_it_is_given_without_a_virtual_environment():
    planned = make("--dry-run", "record", "NOTEBOOKS=one_gpu", PYTHON="python3").stdout
    assert planned.strip() == "python3 -m evidence record one_gpu"


def test_the_tests_say_first_what_they_miss_and_the_gpu_gets_the_time_that_one_gives():
    planned = make("--dry-run", "test").stdout.splitlines()
    commands = [line for line in planned if "-m evidence" in line or "-m pytest" in line]
    assert "evidence.ready" in commands[0]
    planned = make("--dry-run", "gpu", "SECONDS=5", "PATIENCE=4", PYTHON="python3").stdout
    assert "--seconds 5 --patience 4" in planned


@pytest.mark.nightly  # it installs what the site needs
def test_the_first_command_of_the_readme_serves_the_site_from_a_fresh_clone(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "PYTHONPATH")}
    with (tmp_path / "log").open("w+") as log:
        serving = subprocess.Popen(["make", "serve"], cwd=clone, env=kept | {"PORT": str(port)}, stdout=log, stderr=log, start_new_session=True)
        try:
            answered = _answer(f"http://127.0.0.1:{port}/", serving)
        finally:
            os.killpg(serving.pid, signal.SIGTERM)
            serving.wait(30)
        log.seek(0)
        assert answered and "<h1" in answered, log.read()


def _answer(address, process, seconds=600):
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(address, timeout=5).read().decode()
        time.sleep(1)
    return None


# macOS brings GNU Make 3.81, the last under its old license, and the tools of BSD.
NEWER_THAN_MAKE_3_81 = {
    "!=": r"^[\w-]+\s*!=",
    "::=": r"::=",
    ".ONESHELL": r"^\.ONESHELL",
    "$(file ...)": r"\$\(file ",
    "undefine": r"^\s*undefine\b",
    "private": r":\s*private\b",
    "$(intcmp ...)": r"\$\((?:intcmp|let) ",
    "&:": r"&:",
    ".SHELLFLAGS": r"^\.SHELLFLAGS",
}
ONLY_GNU_TOOLS_HAVE = r"sed -i|readlink -f|date -d|grep -P|sort -V|xargs -r|cp -[a-z]*[at]|mktemp -p|stat -c|\b(?:nproc|realpath|sha256sum|flock|gawk)\b|(?<![\w-])timeout "


def test_the_makefile_needs_no_make_and_no_tool_that_macos_lacks():
    text = (ROOT / "Makefile").read_text()
    found = [name for name, pattern in NEWER_THAN_MAKE_3_81.items() if re.search(pattern, text, re.M)]
    assert not found, f"Makefile: GNU Make 3.81 of macOS does not have {', '.join(found)}"
    assert not [line for line in text.splitlines() if line.startswith("\t") and re.search(ONLY_GNU_TOOLS_HAVE, line)]


def test_no_two_files_differ_in_case_alone_since_the_disks_of_macos_and_windows_hold_one_of_them():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name]
    assert len(names) > 100
    folded = Counter(name.casefold() for name in names)
    assert not [name for name in names if folded[name.casefold()] > 1]
    assert not [name for name in names if re.search(r'[<>:"|?*\\]|[. ]$', name)], "Windows takes no such name"


def test_a_python_without_its_venv_module_is_told_what_to_install(tmp_path):
    """As on Debian and Ubuntu: `python3 -m venv` fails half way."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1 $2" = "-m venv" ] && mkdir -p "$3" && exit 1\nexit 0\n')
    python.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "site.txt").touch()
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    done = make("serve", folder=tmp_path, PYTHON=str(python))
    assert done.returncode != 0
    assert "Fix: install its venv module (Debian: apt-get install python3-venv)" in done.stderr
    assert not (tmp_path / ".venv").exists()


def ready(**environment):
    """What `make test` asks first, on a machine with room, without a browser on its path."""
    room = "import shutil, sys, types; shutil.disk_usage = lambda folder: types.SimpleNamespace(free=1e12)"
    command = [sys.executable, "-c", f"{room}; from evidence import ready; sys.exit(ready.main([]))"]
    kept = {"PATH": "/nonexistent", "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, timeout=60)


def test_a_machine_without_a_browser_and_without_its_download_is_told_before_anything_is_installed():
    done = ready(https_proxy="http://127.0.0.1:9")
    assert done.returncode == 1 and "there is no Chromium here" in done.stderr and "apt-get install chromium" in done.stderr
    assert ready(https_proxy="http://127.0.0.1:9", CHROMIUM=sys.executable).returncode == 0
    assert "CHROMIUM=no-such-program is no program" in ready(CHROMIUM="no-such-program").stderr


def test_too_little_room_is_told_before_anything_is_installed(monkeypatch, capsys):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=3e9))
    assert evidence.ready.main([]) == 1
    assert "has 3 GB free, and the run needs" in capsys.readouterr().err
