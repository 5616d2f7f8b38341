"""The Makefile: its two commands, and what it says to a machine that cannot run them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

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
    for command in ("serve", "site", "check", "test", "notebooks", "record", "verify", "help"):
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


def test_a_port_in_use_is_named_with_a_free_one():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "evidence", "port", str(number)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert f"Makefile: port {number} is in use. Fix: PORT=" in done.stderr


def test_record_uses_the_python_it_is_given_without_a_virtual_environment():
    planned = make("--dry-run", "record", "NOTEBOOKS=one_gpu", PYTHON="python3").stdout
    assert planned.strip() == "python3 -m evidence record one_gpu"
