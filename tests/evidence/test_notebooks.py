"""A notebook, what it shows and its record belong together; whatever does not is named with line and fix."""

import ast
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

from conftest import MACHINE
from evidence import claims, finish, freshness, machine, notebooks, records, runs
from evidence.problems import Problem

ROOT = Path(__file__).resolve().parents[2]
RECORD_AGAIN = "run `make record NOTEBOOKS=tiny`"
EXACT_AGAIN = "run `make exact NOTEBOOKS=tiny`"
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


def test_lines_of_a_log_are_no_output_and_printed_lines_are():
    log = "[2026-11-28 19:02:11,482] [INFO] [real_accelerator.py:260:get_accelerator] cpu\n"
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="model.py:3: UserWarning\n"),
        nbformat.v4.new_output("stream", name="stdout", text=f"{log}loss 2.3\n{log}"),
        nbformat.v4.new_output("stream", name="stdout", text=log),
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("train()", outputs=outputs)])
    runs.drop_logs(notebook)
    assert [output.text for output in notebook.cells[0].outputs] == ["loss 2.3\n"]


def test_records_tell_machine_versions_date_command_and_source(repository):
    data, exact = records.load(repository.record).data, records.load(repository.exact).data
    assert data["machine"]["name"] == "test-cpu-2core" and data["software"]["torch"] == "2.13.0"
    assert data["command"] == exact["command"] == "make record NOTEBOOKS=tiny"
    assert freshness.is_of_today(records.load(repository.record)) and not freshness.stale(records.load(repository.record))
    assert list(data["code"]["claims"]) == ["step-speed"] and "code" not in exact


def test_a_record_of_other_code_than_its_notebook_is_named(repository):
    repository.change_record(lambda data: data.update(source="0" * 64), repository.exact)
    where = f"{repository.exact}:{line_with(repository.exact, 'source')}: the code of notebooks/tiny.py has changed since this run"
    assert repository.notebook_problems() == [f"{where}. Fix: {EXACT_AGAIN}"]


def test_what_is_measured_is_the_machine_s_and_the_rest_is_the_project_s(repository):
    data, exact = records.load(repository.record).data, records.load(repository.exact).data
    assert (list(data["claims"]), list(data["tables"])) == (["step-speed"], [])
    assert (list(exact["claims"]), list(exact["tables"])) == (["peak-memory"], ["by-batch"])
    assert "machine" not in exact


def test_a_changed_exact_cell_is_named_with_the_command_that_takes_minutes(repository):
    line = repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    problems = repository.notebook_problems()
    what = f"{repository.source}:{line}: cell 4 is not the one in tiny.ipynb: edited without running. Fix: {EXACT_AGAIN}"
    assert [problem for problem in problems if problem.startswith(what)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A notebook of the tests.", "# A notebook of our tests."),
        ("peak = 12.5", "peak = 12.5  # GiB"),
        ("peak = 12.5", "# Why\n\npeak = 12.5"),
        ("# # Tiny", "# # Tiny\n#\n# More."),
    ],
)
def test_a_word_of_prose_or_a_comment_makes_nothing_stale_and_needs_no_run(repository, old, new):
    before = repository.record.read_bytes()
    repository.edit(repository.source, old, new)
    (problem,) = repository.notebook_problems()
    assert "its words differ. Fix: run `make pair`" in problem
    assert notebooks.pair("tiny")
    assert repository.notebook_problems() == []
    assert repository.record.read_bytes() == before


def test_a_new_cell_of_prose_needs_no_run_either(repository):
    repository.edit(repository.source, "# %%\npeak = 12.5", "# %% [markdown]\n# ## The peak\n\n# %%\npeak = 12.5")
    assert notebooks.pair("tiny") and repository.notebook_problems() == []


def test_pair_leaves_a_notebook_alone_whose_code_has_changed(repository):
    repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    before = repository.files()
    assert not notebooks.pair("tiny")
    assert repository.files() == before


def test_an_edit_of_the_ipynb_alone_is_told_that_the_py_is_the_source(repository):
    change_notebook(repository, lambda notebook: notebook.cells[3].update(source="peak = 1"))
    line = line_with(repository.source, "peak = 12.5")
    assert repository.notebook_problems()[0] == (
        f"{repository.source}:{line}: cell 4 is not the one in tiny.ipynb: edited without running. "
        f"Fix: {EXACT_AGAIN}; take over edits of the .ipynb first"
    )


def test_an_added_cell_is_noticed(repository):
    repository.edit(repository.source, f"# %%\n{notebooks.CLOSING}", f"# %%\nprint(1)\n\n# %%\n{notebooks.CLOSING}")
    assert any(
        "cell 7 is not the one in tiny.ipynb: edited without running" in one for one in repository.notebook_problems()
    )


def test_a_cell_that_is_no_python_is_named_with_its_line(repository):
    line = repository.edit(repository.source, "peak = 12.5", "peak = = 12.5")
    (problem,) = repository.notebook_problems()
    assert problem.startswith(f"{repository.source}:{line}: a cell is no Python: invalid syntax in 'peak = = 12.5'")


def test_a_claim_in_a_cell_of_the_other_sort_is_refused_at_the_cell(repository):
    repository.edit(repository.source, '# %% tags=["measures"]', "# %%")
    line = line_with(repository.source, 'claim("step-speed"')
    with pytest.raises(
        Problem, match=rf"tiny\.py:{line}: cell 5: claim step-speed measures, and its cell has no tag\. Fix: begin"
    ):
        runs.record("tiny", say=print)


def test_a_source_that_is_edited_while_its_notebook_runs_is_stale_afterwards(repository, monkeypatch):
    executed = runs._execute

    def execute_and_edit(name, notebook, say):
        executed(name, notebook, say)
        repository.edit(repository.source, "peak = 12.5", "peak = 12.4")

    monkeypatch.setattr(runs, "_execute", execute_and_edit)
    runs.record("tiny", say=print)
    assert not freshness.is_of_today(records.load(repository.exact))


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
    repository.edit(repository.source, f"# %%\n{notebooks.CLOSING}", f"# %%\n\n# %%\n{notebooks.CLOSING}")
    runs.record("tiny", say=print)
    change_notebook(repository, lambda notebook: notebook.cells[6].update(execution_count=None))
    assert repository.notebook_problems() == []


def test_a_stored_error_is_named_with_its_cell(repository):
    error = nbformat.v4.new_output("error", ename="ValueError", evalue="no such\nthing", traceback=[])
    change_notebook(repository, lambda notebook: notebook.cells[3].outputs.append(error))
    problem = repository.notebook_problems()[0]
    assert re.fullmatch(
        rf"{repository.notebook}:\d+: cell 4 ended with ValueError: no such thing\. Fix: mend the source, then {RECORD_AGAIN}",
        problem,
    )


@pytest.mark.parametrize("change", [
    lambda output: output.data.update({"text/html": output.data["text/html"].replace("12.5", "11.5")}),
    lambda output: output.data.update({"text/plain": "nothing"}),
    lambda output: output.data.pop("text/html"),
])  # fmt: skip
def test_an_output_that_was_edited_is_found(repository, change):
    change_output(repository, "peak-memory", change)
    (problem,) = repository.notebook_problems()
    assert problem == f"{repository.notebook}: an output was edited or cleared since the run. Fix: {RECORD_AGAIN}"


def test_an_output_that_was_cleared_is_found(repository):
    change_notebook(repository, lambda notebook: notebook.cells[3].update(outputs=[]))
    assert "an output was edited or cleared since the run" in repository.notebook_problems()[0]


def test_a_digit_changed_in_a_record_is_found(repository):
    repository.edit(repository.record, '"value": 2.3', '"value": 2.9')
    (problem,) = repository.notebook_problems()
    assert problem == (
        f"{repository.record}:{line_with(repository.record, 'step-speed')}: claim step-speed differs between notebook and record: "
        f"value is 2.3 in the one, 2.9 in the other (tiny.ipynb and test-cpu-2core.json belong together). Fix: {RECORD_AGAIN}"
    )


def test_a_digit_changed_in_what_is_exact_is_found(repository):
    repository.change_record(lambda data: data["tables"]["by-batch"]["rows"][0].__setitem__(1, 3.1), repository.exact)
    (problem,) = repository.notebook_problems()
    assert "exact.json" in problem and "table by-batch, row 1, plain: this run gives 3, the record says 3.1" in problem


@pytest.mark.parametrize(
    ("key", "change", "difference"),
    [
        ("date", lambda data: data.update(date="2025-01-01"), ", 2025-01-01 in the other"),
        ("software", lambda data: data["software"].update(torch="2.14.0"), ": torch is 2.13.0 in the one, 2.14.0 in the other"),
        ("machine", lambda data: data["machine"].update(memory_gib=64), ": memory_gib is 8.0 in the one, 64 in the other"),
    ],
)  # fmt: skip
def test_a_changed_date_version_or_machine_of_a_record_is_found(repository, key, change, difference):
    repository.change_record(change)
    problem = repository.notebook_problems()[0]
    assert problem.startswith(
        f"{repository.record}:{line_with(repository.record, json.dumps(key))}: {key} differs between notebook and record"
    )
    assert difference in problem and problem.endswith(f"Fix: {RECORD_AGAIN}")


def test_a_source_that_is_not_utf_8_is_named_with_its_line(repository):
    line = line_with(repository.source, "A notebook of the tests")
    content = repository.source.read_bytes().replace(b"A notebook of", "Ein Notizbuch für".encode("latin-1"))
    repository.source.write_bytes(content)
    (problem,) = repository.notebook_problems()
    assert re.search(rf"tiny\.py:{line}: not UTF-8 text .* Fix: save it as UTF-8", problem)


def test_a_missing_record_is_named(repository):
    repository.record.unlink()
    assert repository.notebook_problems() == [
        f"{repository.notebook}: its record {repository.record} is missing. Fix: {RECORD_AGAIN}"
    ]


def test_a_notebook_that_opens_no_run_is_told_how(repository):
    repository.edit(repository.source, 'start("tiny")\n', "")
    before = repository.files()
    with pytest.raises(claims.ClaimError, match="claim peak-memory stands before its run is opened"):
        runs.record("tiny", say=print)
    text = repository.source.read_text()
    repository.source.write_text(text[: text.index("# %%\npeak")])  # no claim is left
    before[repository.source.as_posix()] = repository.source.read_bytes()
    with pytest.raises(
        Problem, match=r'tiny\.py: the notebook opens no run. Fix: call start\("tiny"\) in a cell of its own'
    ):
        runs.record("tiny", say=print)
    assert repository.files() == before


def test_a_notebook_that_opens_the_run_of_another_is_told_at_the_line(repository):
    line = repository.edit(repository.source, 'start("tiny")', 'start("other")')
    with pytest.raises(
        Problem, match=rf'tiny\.py:{line}: the notebook opens a run of other. Fix: call start\("tiny"\)'
    ):
        runs.record("tiny", say=print)


def test_a_record_that_would_be_refused_is_not_written(repository, monkeypatch):
    here = {"name": "My Laptop", "label": "x", "cpu": "x", "cores": 1, "memory_gib": 1, "fingerprint": "0123abcd"}
    monkeypatch.setattr(claims.machine, "describe", lambda: here)
    before = repository.files()
    with pytest.raises(Problem, match="machine/name: 'My Laptop' does not match.* the stored record is as before"):
        runs.record("tiny", say=print)
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
        runs.record("tiny", say=print)
    assert repository.files() == before


def test_recording_again_mends_what_an_edit_broke(repository):
    repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    assert repository.notebook_problems()
    said = []
    runs.record("tiny", say=said.append)
    assert said == ["tiny: 2 claims, 1 tables in results/tiny/exact.json and results/tiny/test-cpu-2core.json"]
    assert repository.notebook_problems() == []
    assert records.load(repository.exact).data["claims"]["peak-memory"]["value"] == 12.4


def test_an_executed_notebook_without_its_source_is_named(repository):
    repository.notebook.with_stem("tinny").write_bytes(repository.notebook.read_bytes())
    (problem,) = map(str, notebooks.strays())
    assert problem == (
        "notebooks/tinny.ipynb: there is no tinny.py, its source (did you mean tiny?). "
        "Fix: delete it, or make the source by `jupytext --to py:percent notebooks/tinny.ipynb`"
    )


def test_a_record_without_its_notebook_is_named(repository):
    repository.record.parent.rename("results/gone")
    problems = [str(problem) for problem in notebooks.strays()]
    assert problems[0].startswith("results/gone/exact.json:1: there is no notebook gone, which this record comes from")
    assert len(problems) == 2


class TestInstallCell:
    def test_pair_changes_nothing_where_nothing_is_to_do(self, repository):
        before = repository.files()
        notebooks.refresh_install_cells()
        assert repository.files() == before

    def test_pair_puts_the_install_cell_before_the_code_of_an_author_and_loses_none_of_it(self, repository):
        own = repository.source.read_text().replace(f"# %%\n{notebooks.install_cell()}\n\n", "")
        repository.source.write_text(own)
        assert "the first code cell is not the install cell" in repository.notebook_problems()[0]
        notebooks.refresh_install_cells()
        assert notebooks.pair("tiny")
        assert repository.notebook_problems() == []

    def test_pair_keeps_what_an_author_wrote_below_the_install_cell(self, repository):
        last = notebooks.install_cell().splitlines()[-1]
        repository.edit(repository.source, f"{last}\n", f"{last}\n\nimport math\n")
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
        assert f"{repository.source}: there is no code cell. Fix: {fix}" in repository.notebook_problems()
        with pytest.raises(Problem, match="there is no code cell"):
            notebooks.refresh_install_cells()

    def test_an_address_that_is_a_placeholder_is_named_until_it_is_set(self, repository):
        text = Path("pyproject.toml").read_text()
        mark = "[tool.evidence]\nplaceholder = true\n"
        Path("pyproject.toml").write_text(re.sub(r"\[tool\.evidence\]\nplaceholder = .*\n", "", text) + mark)
        note = f"note: pyproject.toml: the address {notebooks.project()['urls']['Repository']} is a placeholder. Before"
        assert notebooks.placeholder().startswith(note)
        Path("pyproject.toml").write_text(Path("pyproject.toml").read_text().replace(mark, ""))
        assert notebooks.placeholder() is None

    def test_it_pins_what_the_head_of_the_notebook_needs_in_the_version_of_the_lock(self, repository):
        repository.edit(repository.source, "# jupyter:\n", "# jupyter:\n#   needs: [peft, optimum]\n")
        Path("requirements/test.txt").write_text("peft==0.21.2 \\\n    --hash=sha256:aa\noptimum==2.1.0\n")
        Path("requirements/tiny.txt").write_text("optimum[x]==2.3.0\ntransformers==4.57.6\n")
        pins = {"transformers": "4.57.6", "accelerate": "1.15.0", "peft": "0.21.2", "optimum": "2.3.0"}
        assert notebooks.pins("tiny") == pins
        what = f"{repository.source}:1: its head is not that of tiny.ipynb. Fix: run `make pair`"
        assert what in repository.notebook_problems()
        notebooks.refresh_install_cells()
        assert notebooks.pair("tiny") and repository.notebook_problems() == []
        assert nbformat.read(repository.notebook, 4).metadata.needs == ["peft", "optimum"]
        assert f"PINS = {json.dumps(pins)}" in repository.source.read_text()

    def test_a_need_that_no_lock_pins_is_named(self, repository):
        repository.edit(repository.source, "# jupyter:\n", "# jupyter:\n#   needs: [pefd]\n")
        Path("requirements/test.txt").write_text("peft==0.21.2\n")
        what = r"tiny\.py:1: it needs pefd, which no lock pins \(did you mean peft\?\)\. Fix: name it in requirements/test\.in"
        with pytest.raises(Problem, match=what):
            notebooks.pins("tiny")

    def test_a_line_of_pins_has_at_most_120_columns(self, repository):
        needs = {f"a-package-of-this-length-{number}": "1.0.0" for number in range(9)}
        repository.edit(repository.source, "# jupyter:\n", f"# jupyter:\n#   needs: [{', '.join(needs)}]\n")
        Path("requirements/test.txt").write_text("".join(f"{name}=={needs[name]}\n" for name in needs))
        lines = notebooks.install_cell("tiny").partition("PINS = ")[2].partition("\nif ")[0].splitlines()
        assert len(lines) > 2 and max(map(len, lines)) <= 120
        assert ast.literal_eval("\n".join(lines)) == notebooks.pins("tiny")


class TestKernel:
    """With a real kernel, which takes a second each."""

    @pytest.fixture(autouse=True)
    def real_kernel(self, repository, monkeypatch, quick_torch):
        monkeypatch.setattr(runs, "_execute", repository.kernel)
        self.repository = repository

    def short(self, *cells):
        self.repository.source.write_text(
            "\n\n".join(f"# %%\n{cell}" for cell in (notebooks.install_cell(), *cells)) + "\n"
        )

    def refused(self, what):
        before = self.repository.files()
        with pytest.raises(Problem) as caught:
            runs.record("tiny", say=lambda text: None)
        assert re.fullmatch(what, str(caught.value))
        assert self.repository.files() == before

    def test_a_run_stores_notebook_and_records_of_this_machine(self):
        said = []
        runs.record("tiny", say=said.append)
        assert re.fullmatch(r"tiny: cell 1/5 after \d+ s: # Installs what this notebook needs.*", said[0])
        assert self.repository.notebook_problems() == []
        kept = {self.repository.exact, self.repository.record}
        (path,) = [path for path in self.repository.record.parent.iterdir() if path not in kept]
        stored = records.load(path)
        assert stored.data["software"]["python"] == sys.version.split()[0]

    def test_what_is_exact_is_computed_again_without_the_cells_that_measure(self):
        self.repository.edit(
            self.repository.source, 'claim("step-speed"', 'raise SystemExit("measured")\nclaim("step-speed"'
        )
        assert runs.recompute("tiny", say=lambda text: None) == 2

    def test_a_run_of_what_is_exact_numbers_the_cells_as_a_run_of_all_does(self):
        runs.exact("tiny", say=lambda text: None)
        cells = [cell for cell in nbformat.read(self.repository.notebook, 4).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == [1, 2, 3, 4, 5, None]  # the last is for readers
        assert self.repository.notebook_problems() == []

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
        monkeypatch.setattr(runs, "TIMEOUT", 1)
        self.short("import time\ntime.sleep(60)")
        line = line_with(self.repository.source, "import time")
        self.refused(rf"{self.repository.source}:{line}: cell 2 ran longer than 1 s\. Fix: .*")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("peak = 12.5", "peak = 12.2", r"claim peak-memory: this run gives 12\.2, the record says 12\.5"),
        ('"plain": 3.0', '"plain": 4.0', "table by-batch, row 1, plain: this run gives 4, the record says 3"),
        ('claim("peak-memory"', 'claim("peak"', "claim peak(-memory)?: (this run leaves, and the record lacks|the record has, and)"),
    ],
)  # fmt: skip
def test_an_exact_figure_that_comes_out_otherwise_is_named(repository, old, new, what):
    repository.edit(repository.source, old, new)
    with pytest.raises(Problem, match=what):
        runs.recompute("tiny", say=print)


def test_with_the_same_code_and_versions_an_exact_figure_may_not_change(repository, monkeypatch):
    repository.edit(repository.source, "peak = 12.5", "import os\n\npeak = float(os.environ.get('PEAK', 12.5))")
    runs.record("tiny", say=print)
    before = repository.files()
    monkeypatch.setenv("PEAK", "11")
    with pytest.raises(Problem, match="this run gives 11, .* nothing was written"):
        runs.record("tiny", say=print)
    assert repository.files() == before


def test_a_machine_of_another_kind_with_the_same_name_gets_a_name_of_its_own(repository, monkeypatch):
    before = repository.record.read_bytes()
    monkeypatch.setattr(machine, "describe", lambda: MACHINE | {"fingerprint": "beef0000"})
    runs.record("tiny", say=print)
    assert repository.record.read_bytes() == before
    assert records.load(repository.record.with_stem("test-cpu-2core-beef")).machine == "test-cpu-2core-beef"
    assert repository.notebook_problems() == []


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


def test_the_installed_package_carries_the_published_records(wheel):
    published = {f"evidence/{finish.PUBLISHED.name}/{path.parent.name}/{path.name}" for path in (ROOT / "results").glob("*/*.json")}
    assert published and published <= set(zipfile.ZipFile(wheel).namelist())
