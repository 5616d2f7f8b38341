"""A notebook, what it shows and its record belong together; whatever does not is named with line and fix."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import jupytext
import nbformat
import pytest

from evidence import claims, notebooks, records
from evidence.problems import Problem

ROOT = Path(__file__).resolve().parent.parent
RECORD_AGAIN = "run `make record NOTEBOOKS=tiny`"
CLAIM_CELL = 'claim("peak-memory"'


def line_with(path, fragment):
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if fragment in line)


def change_notebook(repository, change):
    """Lets `change` alter the stored notebook in place."""
    notebook = nbformat.read(repository.notebook, 4)
    change(notebook)
    repository.notebook.write_text(nbformat.writes(notebook))


def change_output(repository, key, change):
    """Lets `change` alter what the cell of one claim or table stored."""

    def find(notebook):
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if any(isinstance(data, dict) and data.get("name") == key for data in output.data.values()):
                    change(output)
                    return
        raise AssertionError(f"no output of {key}")

    change_notebook(repository, find)


def test_a_notebook_with_its_outputs_and_its_record_has_no_problem(repository):
    assert repository.notebook_problems() == []


def test_a_record_tells_machine_versions_date_command_and_source(repository):
    data = records.load(repository.record).data
    assert data["machine"]["name"] == "test-machine" and data["software"]["torch"] == "2.13.0"
    assert data["command"] == "make record NOTEBOOKS=tiny"
    assert data["source"] == notebooks.source_hash("tiny")
    assert list(data["claims"]) == ["peak-memory", "step-speed"] and list(data["tables"]) == ["by-batch"]


def test_an_edit_without_a_run_names_the_line_that_changed(repository):
    line = repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    what = (
        f"{repository.source}:{line}: cell 4 is not the one in tiny.ipynb: edited without running. Fix: {RECORD_AGAIN}"
    )
    assert repository.notebook_problems()[0].startswith(what)


def test_an_edit_of_the_text_without_a_run_names_the_line_that_changed(repository):
    line = repository.edit(repository.source, "# A notebook of the tests.", "# A notebook of our tests.")
    assert repository.notebook_problems()[0].startswith(
        f"{repository.source}:{line}: cell 1 is not the one in tiny.ipynb"
    )


def test_an_edit_of_the_ipynb_alone_is_told_that_the_py_is_the_source(repository):
    change_notebook(repository, lambda notebook: notebook.cells[3].update(source="peak = 1"))
    line = line_with(repository.source, "peak = 12.5")
    assert repository.notebook_problems()[0] == (
        f"{repository.source}:{line}: cell 4 is not the one in tiny.ipynb: edited without running. "
        f"Fix: {RECORD_AGAIN}, which makes tiny.ipynb from tiny.py; take over edits of the .ipynb first"
    )


def test_an_added_cell_is_noticed(repository):
    repository.source.write_text(repository.source.read_text() + "\n# %%\nprint(1)\n")
    assert "7 cells here, 6 in tiny.ipynb: edited without running" in repository.notebook_problems()[0]


def test_an_edit_outside_the_cells_is_noticed(repository):
    repository.edit(repository.source, "# jupyter:", "# jupyter: ")
    first, second = repository.notebook_problems()
    assert first.startswith(f"{repository.source}: tiny.ipynb was made from another version of this file")
    line = line_with(repository.record, '"source"')
    assert (
        second
        == f"{repository.record}:{line}: the record is older than tiny.py, which it comes from. Fix: {RECORD_AGAIN}"
    )


def test_a_missing_ipynb_is_named(repository):
    repository.notebook.unlink()
    assert repository.notebook_problems() == [f"{repository.source}: tiny.ipynb is missing. Fix: {RECORD_AGAIN}"]


def test_an_ipynb_cut_in_half_is_named(repository):
    text = repository.notebook.read_text()
    repository.notebook.write_text(text[: len(text) // 2])
    (problem,) = repository.notebook_problems()
    assert problem.startswith(f"{repository.notebook}: not a notebook (") and problem.endswith(f"Fix: {RECORD_AGAIN}")


def test_a_cell_that_was_not_executed_is_named_with_its_line(repository):
    change_notebook(repository, lambda notebook: notebook.cells[3].update(execution_count=None))
    lines = [
        number for number, text in enumerate(repository.notebook.read_text().splitlines(), 1) if '"cell_type"' in text
    ]
    assert repository.notebook_problems() == [
        f"{repository.notebook}:{lines[3]}: cell 4 was not executed. Fix: {RECORD_AGAIN}"
    ]


def test_an_empty_cell_needs_no_execution(repository):
    repository.source.write_text(repository.source.read_text() + "\n# %%\n")
    notebooks.record("tiny", say=print)
    change_notebook(repository, lambda notebook: notebook.cells[6].update(execution_count=None))
    assert repository.notebook_problems() == []


def test_a_stored_error_is_named_with_its_cell(repository):
    error = nbformat.v4.new_output("error", ename="ValueError", evalue="no such\nthing", traceback=[])
    change_notebook(repository, lambda notebook: notebook.cells[3].outputs.append(error))
    (problem,) = repository.notebook_problems()
    assert re.fullmatch(
        rf"{repository.notebook}:\d+: cell 4 ended with ValueError: no such thing\. Fix: mend the source, then {RECORD_AGAIN}",
        problem,
    )


def test_a_digit_changed_in_the_stored_data_of_a_claim_is_found(repository):
    line = repository.edit(repository.notebook, '"value": 12.5', '"value": 12.6')
    assert line
    (problem,) = repository.notebook_problems()
    assert problem == (
        f"{repository.record}:{line_with(repository.record, 'peak-memory')}: claim peak-memory differs between notebook and record: "
        f"value is 12.6 in the one, 12.5 in the other (tiny.ipynb and test-machine.json belong together). Fix: {RECORD_AGAIN}"
    )


@pytest.mark.parametrize("mime", ["text/plain", "text/html"])
def test_a_digit_changed_in_what_the_notebook_shows_is_found(repository, mime):
    def change(output):
        assert "12.5" in output.data[mime]
        output.data[mime] = output.data[mime].replace("12.5", "11.5")

    change_output(repository, "peak-memory", change)
    (problem,) = repository.notebook_problems()
    assert re.fullmatch(
        rf"{repository.notebook}:\d+: cell 4 does not show what claim peak-memory says \({mime}\)\. Fix: {RECORD_AGAIN}",
        problem,
    )


def test_a_digit_changed_in_a_shown_table_is_found(repository):
    change_output(
        repository,
        "by-batch",
        lambda output: output.data.update({"text/html": output.data["text/html"].replace("5", "6")}),
    )
    (problem,) = repository.notebook_problems()
    assert "cell 6 does not show what table by-batch says (text/html)" in problem


def test_a_machine_renamed_in_what_the_notebook_shows_is_found(repository):
    repository.edit(repository.notebook, "<p>machine Test machine, memory", "<p>machine Better machine, memory")
    (problem,) = repository.notebook_problems()
    assert "cell 3 does not show what start() says (text/html)" in problem


def test_a_digit_changed_in_a_record_is_found(repository):
    repository.edit(repository.record, '"value": 2.3', '"value": 2.9')
    (problem,) = repository.notebook_problems()
    assert problem == (
        f"{repository.record}:{line_with(repository.record, 'step-speed')}: claim step-speed differs between notebook and record: "
        f"value is 2.3 in the one, 2.9 in the other (tiny.ipynb and test-machine.json belong together). Fix: {RECORD_AGAIN}"
    )


def test_a_digit_changed_in_a_table_of_a_record_is_found(repository):
    repository.change_record(lambda data: data["tables"]["by-batch"]["rows"][0].__setitem__(1, 3.1))
    (problem,) = repository.notebook_problems()
    assert "table by-batch differs between notebook and record: rows is [[1, 3.0, 2.0]" in problem


@pytest.mark.parametrize(
    ("key", "change", "difference"),
    [
        ("date", lambda data: data.update(date="2025-01-01"), ", 2025-01-01 in the other"),
        (
            "software",
            lambda data: data["software"].update(torch="2.14.0"),
            ": torch is 2.13.0 in the one, 2.14.0 in the other",
        ),
        ("machine", lambda data: data["machine"].update(cores=64), ": cores is 2 in the one, 64 in the other"),
        (
            "command",
            lambda data: data.update(command="make"),
            ": command is make record NOTEBOOKS=tiny in the one, make in the other",
        ),
    ],
)
def test_a_changed_date_version_machine_or_command_of_a_record_is_found(repository, key, change, difference):
    repository.change_record(change)
    problem = repository.notebook_problems()[0]
    assert problem.startswith(
        f"{repository.record}:{line_with(repository.record, json.dumps(key))}: {key} differs between notebook and record"
    )
    assert difference in problem and problem.endswith(f"Fix: {RECORD_AGAIN}")


def test_a_claim_removed_from_the_outputs_is_found(repository):
    change_notebook(repository, lambda notebook: notebook.cells[4].update(outputs=[]))
    (problem,) = repository.notebook_problems()
    line = line_with(repository.record, "step-speed")
    assert problem.startswith(
        f"{repository.record}:{line}: claim step-speed stands in the record and not in the notebook"
    )


def test_a_claim_removed_from_the_record_is_found(repository):
    repository.change_record(lambda data: data["claims"].pop("step-speed"))
    (problem,) = repository.notebook_problems()
    line = line_with(repository.notebook, '"name": "step-speed"')
    assert problem.startswith(
        f"{repository.notebook}:{line}: claim step-speed stands in the notebook and not in the record"
    )
    assert problem.endswith(f"Fix: {RECORD_AGAIN}")


def test_a_claim_removed_from_the_source_is_found(repository):
    text = repository.source.read_text()
    begin, end = text.index('claim("step-speed"'), text.index("# %%\ntable(")
    repository.source.write_text(text[:begin] + text[end:])
    problem = repository.notebook_problems()[0]
    assert "edited without running" in problem and problem.startswith(f"{repository.source}:")


def test_two_claims_of_one_name_in_the_outputs_are_named_with_their_cell(repository):
    change_notebook(repository, lambda notebook: notebook.cells[4].outputs.append(notebook.cells[3].outputs[0]))
    (problem,) = repository.notebook_problems()
    assert re.fullmatch(
        rf"{repository.notebook}:\d+: cell 5: two claims of the name peak-memory\. Fix: give one of them another name",
        problem,
    )


def test_two_claims_of_one_name_in_the_source_fail_the_run_and_lose_nothing(repository):
    repository.edit(repository.source, 'claim("step-speed"', 'claim("peak-memory"')
    before = repository.files()
    with pytest.raises(claims.ClaimError, match="'peak-memory' stands twice in this notebook"):
        notebooks.record("tiny", say=print)
    assert repository.files() == before


def test_a_source_that_is_not_utf_8_is_named_with_its_line(repository):
    line = line_with(repository.source, "A notebook of the tests")
    content = repository.source.read_bytes().replace(b"A notebook of", "Ein Notizbuch für".encode("latin-1"))
    repository.source.write_bytes(content)
    with pytest.raises(Problem, match=rf"tiny\.py:{line}: not UTF-8 text .* Fix: save it as UTF-8"):
        notebooks.check("tiny")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda opened: opened.pop("notebook"), r"start\(\): 'notebook' is a required property"),
        (lambda opened: opened["machine"].pop("name"), r"start\(\)/machine: 'name' is a required property"),
        (lambda opened: opened.update(machine="mine"), r"start\(\)/machine: 'mine' is not of type 'object'"),
    ],
)
def test_a_run_that_was_opened_and_does_not_say_where_is_named(repository, change, what):
    def change_start(notebook):
        mime = claims.MIME["start"]
        (output,) = [one for cell in notebook.cells for one in cell.get("outputs", []) if mime in one.get("data", {})]
        change(output["data"][mime])

    change_notebook(repository, change_start)
    (problem,) = repository.notebook_problems()
    assert re.fullmatch(rf"{repository.notebook}: {what}\. Fix: {RECORD_AGAIN}", problem)


def test_a_missing_record_is_named(repository):
    repository.record.unlink()
    assert repository.notebook_problems() == [
        f"{repository.notebook}: its record {repository.record} is missing. Fix: {RECORD_AGAIN}"
    ]


def test_a_notebook_that_opens_no_run_is_told_how(repository):
    repository.edit(repository.source, 'start("tiny")\n', "")
    before = repository.files()
    with pytest.raises(claims.ClaimError, match="claim peak-memory stands before its run is opened"):
        notebooks.record("tiny", say=print)
    text = repository.source.read_text()
    repository.source.write_text(text[: text.index("# %%\npeak")])  # no claim is left
    before[repository.source.as_posix()] = repository.source.read_bytes()
    with pytest.raises(
        Problem, match=r'tiny\.py: the notebook opens no run. Fix: call start\("tiny"\) in a cell of its own'
    ):
        notebooks.record("tiny", say=print)
    assert repository.files() == before


def test_a_notebook_that_opens_the_run_of_another_is_told_at_the_line(repository):
    line = repository.edit(repository.source, 'start("tiny")', 'start("other")')
    with pytest.raises(
        Problem, match=rf'tiny\.py:{line}: the notebook opens a run of other. Fix: call start\("tiny"\)'
    ):
        notebooks.record("tiny", say=print)


def test_a_record_that_would_be_refused_is_not_written(repository, monkeypatch):
    monkeypatch.setattr(
        claims.machine, "describe", lambda: {"name": "My Laptop", "label": "x", "cpu": "x", "cores": 1, "memory_gib": 1}
    )
    before = repository.files()
    with pytest.raises(Problem, match="machine/name: 'My Laptop' does not match.* the stored record is as before"):
        notebooks.record("tiny", say=print)
    assert repository.files() == before


@pytest.mark.parametrize(("function", "call"), [("fsync", 1), ("fsync", 2), ("replace", 1)])
def test_an_interrupted_run_leaves_notebook_and_record_as_before(repository, monkeypatch, function, call):
    repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    before, calls, original = repository.files(), [], getattr(os, function)

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(os, function, interrupt)
    with pytest.raises(KeyboardInterrupt):
        notebooks.record("tiny", say=print)
    assert repository.files() == before


def test_recording_again_mends_what_an_edit_broke(repository):
    repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    assert repository.notebook_problems()
    said = []
    notebooks.record("tiny", say=said.append)
    assert said == ["tiny: 2 claims, 1 tables in results/tiny/test-machine.json"]
    assert repository.notebook_problems() == []
    assert records.load(repository.record).data["claims"]["peak-memory"]["value"] == 12.4


def test_a_folder_without_notebooks_is_no_success(repository):
    repository.source.unlink()
    with pytest.raises(Problem, match="notebooks: there is no notebook. Fix: run from the root of the repository"):
        notebooks.names()


def test_an_executed_notebook_without_its_source_is_named(repository):
    repository.notebook.with_stem("tinny").write_bytes(repository.notebook.read_bytes())
    (problem,) = map(str, notebooks.strays())
    assert problem == (
        "notebooks/tinny.ipynb: there is no tinny.py, its source (did you mean tiny?). "
        "Fix: delete it, or make the source by `jupytext --to py:percent notebooks/tinny.ipynb`"
    )


def test_a_record_without_its_notebook_is_named(repository):
    repository.record.parent.rename("results/gone")
    (problem,) = map(str, notebooks.strays())
    assert problem.startswith(
        "results/gone/test-machine.json:1: there is no notebook gone, which this record comes from"
    )


class TestInstallCell:
    def test_an_install_cell_of_another_version_is_named_and_pair_renews_it(self, repository):
        repository.edit(repository.source, "transformers==5.23.0", "transformers==5.0.0")
        line = line_with(repository.source, "# Installs what")
        what = f"{repository.source}:{line}: the first code cell is not the install cell of this version. Fix: run `make pair`"
        assert repository.notebook_problems()[0] == what
        notebooks.refresh_install_cells()
        assert repository.notebook_problems() == []

    def test_pair_changes_nothing_where_nothing_is_to_do(self, repository):
        before = repository.files()
        notebooks.refresh_install_cells()
        assert repository.files() == before

    def test_pair_puts_the_install_cell_before_the_code_of_an_author_and_loses_none_of_it(self, repository):
        own = repository.source.read_text().replace(f"# %%\n{notebooks.install_cell()}\n\n", "")
        repository.source.write_text(own)
        assert "the first code cell is not the install cell" in repository.notebook_problems()[0]
        notebooks.refresh_install_cells()
        assert repository.notebook_problems() == []

    def test_pair_keeps_what_an_author_wrote_below_the_install_cell(self, repository):
        repository.edit(repository.source, "*needs], check=True)\n", "*needs], check=True)\n\nimport math\n")
        notebooks.refresh_install_cells()
        assert notebooks.read_source("tiny").cells[1].source == notebooks.install_cell()
        assert notebooks.read_source("tiny").cells[2].source == "import math"

    def test_pair_fills_an_empty_first_cell(self, repository):
        repository.edit(repository.source, notebooks.install_cell(), "")
        notebooks.refresh_install_cells()
        assert [cell.source for cell in notebooks.read_source("tiny").cells].count(notebooks.install_cell()) == 1
        assert repository.source.read_text().startswith("# ---\n# jupyter:")

    def test_a_notebook_without_code_is_told_to_add_a_cell(self, repository):
        repository.source.write_text("# %% [markdown]\n# # Only text\n")
        fix = "add one, `# %%`, then run `make pair`"
        assert repository.notebook_problems()[0] == f"{repository.source}: there is no code cell. Fix: {fix}"
        with pytest.raises(Problem, match="there is no code cell"):
            notebooks.refresh_install_cells()

    def test_it_names_the_address_and_the_versions_of_the_project(self, repository):
        cell = notebooks.install_cell()
        assert notebooks.project()["urls"]["Repository"] in cell
        assert "transformers==5.23.0" in cell and "accelerate==1.15.0" in cell and "torch==" not in cell


class TestKernel:
    """With a real kernel, which takes a second each."""

    @pytest.fixture(autouse=True)
    def real_kernel(self, repository, monkeypatch, quick_torch):
        monkeypatch.setattr(notebooks, "_execute", repository.kernel)
        monkeypatch.setenv("EVIDENCE_MACHINE", "test-machine")
        self.repository = repository

    def short(self, *cells):
        self.repository.source.write_text(
            "\n\n".join(f"# %%\n{cell}" for cell in (notebooks.install_cell(), *cells)) + "\n"
        )

    def refused(self, what):
        before = self.repository.files()
        with pytest.raises(Problem) as caught:
            notebooks.record("tiny", say=lambda text: None)
        assert re.fullmatch(what, str(caught.value))
        assert self.repository.files() == before

    def test_a_run_stores_notebook_and_record_and_a_different_traced_value_fails_the_next(self):
        said = []
        notebooks.record("tiny", say=said.append)
        assert re.fullmatch(r"tiny: cell 1/5 after \d+ s: # Installs what this notebook needs.*", said[0])
        assert self.repository.notebook_problems() == []
        assert records.load(self.repository.record).data["software"]["python"] == sys.version.split()[0]

        line = self.repository.edit(self.repository.source, "peak = 12.5", "peak = 12.2") + 1
        before = self.repository.files()
        with pytest.raises(Problem) as caught:
            notebooks.verify("tiny", say=said.append)
        assert re.fullmatch(
            rf"{self.repository.source}:{line}: cell 4 raised ClaimError: peak-memory: this run gives 12\.2, test-machine\.json of "
            r"[\d-]+ says 12\.5: if the change is meant, make the record again with `make record NOTEBOOKS=tiny`\. "
            r"Fix: mend the cell; the stored notebook and record are as before",
            str(caught.value),
        )
        assert self.repository.files() == before

    def test_a_cell_that_raises_is_named_with_the_line_and_loses_nothing(self):
        self.short("x = 1", "x = 2\n\nx / 0")
        line = line_with(self.repository.source, "x / 0")
        fix = "mend the cell; the stored notebook and record are as before"
        self.refused(
            rf"{self.repository.source}:{line}: cell 3 raised ZeroDivisionError: division by zero\. Fix: {fix}"
        )

    def test_a_kernel_that_dies_is_named_with_the_cell_and_loses_nothing(self):
        self.short("import os", "os._exit(1)")
        line = line_with(self.repository.source, "os._exit(1)")
        self.refused(
            rf"{self.repository.source}:{line}: cell 3 ended the process that ran it \(out of memory\?\)\. Fix: .*as before"
        )

    def test_a_cell_that_does_not_end_is_named_and_loses_nothing(self, monkeypatch):
        monkeypatch.setattr(notebooks, "TIMEOUT", 1)
        self.short("import time\ntime.sleep(60)")
        line = line_with(self.repository.source, "import time")
        self.refused(rf"{self.repository.source}:{line}: cell 2 ran longer than 1 s\. Fix: .*")


def test_verify_holds_where_nothing_changed(repository):
    before, said = repository.files(), []
    notebooks.verify("tiny", say=said.append)
    assert said == ["tiny: 1 traced and derived claims agree with the record, 1 others hold"]
    assert repository.files() == before


def test_verify_fails_on_a_different_traced_value(repository):
    repository.edit(repository.source, "peak = 12.5", "peak = 12.2")
    with pytest.raises(claims.ClaimError, match=r"this run gives 12\.2, .* says 12\.5"):
        notebooks.verify("tiny", say=print)


def test_recording_does_not_compare_with_the_record_that_it_replaces(repository, monkeypatch):
    monkeypatch.setenv("EVIDENCE_VERIFY", "results")
    repository.edit(repository.source, "peak = 12.5", "peak = 12.2")
    notebooks.record("tiny", say=print)
    assert records.load(repository.record).data["claims"]["peak-memory"]["value"] == 12.2


def test_a_python_without_jupyter_is_told_what_to_install(repository, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbclient", None)
    with pytest.raises(Problem, match=r"tiny\.py: this python \(.*\) lacks nbclient. Fix: .* -m pip install nbclient"):
        repository.kernel("tiny", notebooks.read_source("tiny"), print)


# A notebook that was downloaded alone installs what it needs, the package included, and runs.


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
    packed = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("evidence/")}
    assert packed == {path.name for path in (ROOT / "evidence").glob("*.py")}
