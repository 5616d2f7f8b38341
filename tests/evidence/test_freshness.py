"""A record belongs to the code that made it: what runs counts, words do not."""

import jupytext
import pytest

from evidence import freshness, records

MARK = '# %% tags=["measures"]\n'


def notebook(repository, *cells):
    repository.source.write_text("\n\n".join(cells) + "\n")
    return freshness.code_and_modules(repository.source)


def cell(source):
    return jupytext.reads(source, {"extension": ".py"}).cells[0]


@pytest.mark.parametrize(
    "same",
    [
        "# %%\nx = 1  # a comment",
        "# %%\n# a comment\nx = 1",
        "# %%\n\nx = 1",
        "# %% [markdown]\n# Words.\n\n# %%\nx = 1",
    ],
)
def test_comments_blank_lines_and_prose_are_no_code(repository, same):
    assert notebook(repository, same)[0] == notebook(repository, "# %%\nx = 1")[0]


@pytest.mark.parametrize("other", ["# %%\nx = 2", "# %%\nx = '1'", "# %%\nx = 1\ny = 1", "# %%\nx = '#1'"])
def test_one_character_of_code_is_another_hash(repository, other):
    assert notebook(repository, other)[0] != notebook(repository, "# %%\nx = 1")[0]


def test_a_hash_in_a_text_is_no_comment():
    assert freshness.what_runs("x = '# no comment'  # a comment") == "x = '# no comment'"


def test_the_install_cell_is_not_what_measures(repository):
    install = "# %%\n# Installs what this notebook needs\nx = {}"
    assert (
        notebook(repository, install.format(1), "# %%\ny = 1")[0]
        == notebook(repository, install.format(2), "# %%\ny = 1")[0]
    )


def test_a_program_that_a_cell_writes_counts_and_its_comments_do_not(repository):
    program = MARK + "# %%writefile a.py\n{}"
    plain = notebook(repository, program.format("import torch"))[0]
    assert notebook(repository, program.format("import torch  # why"))[0] == plain
    assert notebook(repository, program.format("import torch, os"))[0] != plain


def test_a_measurement_is_tied_to_the_modules_it_goes_through(repository):
    assert list(notebook(repository, "# %%\nfrom evidence.measure import interleaved")[1]) == ["evidence/measure.py"]
    assert list(notebook(repository, "# %%\nfrom evidence import measure, claims, plots")[1]) == ["evidence/measure.py"]


def test_what_is_traced_is_computed_again_and_needs_no_tie_unless_a_cell_that_measures_imports_it(repository):
    imports = "from dryrun.trace import Tracker"
    assert notebook(repository, f"# %%\n{imports}")[1] == {}
    tied = notebook(repository, f"{MARK}{imports}")[1]
    assert {"dryrun/trace.py", "dryrun/tracker.py"} <= tied.keys()  # and what trace imports
    assert notebook(repository, f"{MARK}# %%writefile a.py\n{imports}")[1] == tied


def test_a_docstring_of_a_module_is_no_code():
    code = 'def f():\n    """{}"""\n    return "{}"\n'
    assert freshness._normal(code.format("a", "x"), True) == freshness._normal(code.format("b\n    c", "x"), True)
    assert freshness._normal(code.format("a", "x"), True) != freshness._normal(code.format("a", "y"), True)


def test_a_changed_module_makes_what_was_measured_stale_and_what_is_exact_not(repository):
    repository.change_record(lambda data: data["package"].update({"evidence/measure.py": "0" * 64}))
    assert freshness.stale(records.load(repository.record)) == "evidence/measure.py has changed since this run"
    assert freshness.stale(records.load(repository.exact)) is None
    found = freshness.fresh(records.load_all())
    assert [record.machine for record in found["tiny"]] == [""]
