"""A notebook that was downloaded alone installs what it needs, the package included, and runs."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run(build, check=True, timeout=120)
    return next(folder.glob("*.whl"))


@pytest.fixture
def bare_python(tmp_path_factory):
    """A python with the packages of this one, and without ours: as on Colab, where torch is there already."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)  # pip is among the packages, and installs into the python that runs it
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages" / "outside.pth"
    packages.write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def test_a_notebook_alone_installs_the_package_and_opens_its_run(wheel, bare_python, tmp_path, monkeypatch):
    """Every notebook begins with the same cell (`make check`); this one installs packages of its own too."""
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.delenv("EVIDENCE_VERIFY")
    monkeypatch.setenv("EVIDENCE_SOURCE", wheel.as_uri())
    codes = [
        cell.source for cell in jupytext.read(ROOT / "notebooks" / "many_cpus.ipynb").cells if cell.cell_type == "code"
    ]
    program = tmp_path / "program.py"
    opened = next(number for number, code in enumerate(codes) if "\nstart(" in code)
    program.write_text("\n".join([*codes[: opened + 1], "import evidence", "print(evidence.__file__)"]))
    done = subprocess.run([bare_python, program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert str(bare_python.parent.parent) in done.stdout
    assert "torch" in done.stdout


def test_the_installed_package_lacks_no_module(wheel):
    import zipfile

    packed = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("evidence/")}
    assert packed == {path.name for path in (ROOT / "evidence").glob("*.py")}
