"""`python -m evidence`: says what it did in a line, and on a problem says it once and ends with 1."""

import socket
import subprocess
import sys

import pytest

from evidence import notebooks, runs
from evidence.__main__ import main
from evidence.site import addresses


@pytest.fixture
def site_repository(repository, monkeypatch):
    """The small repository with what only the site needs, and an address that is set."""
    monkeypatch.setattr(notebooks, "placeholder", lambda: None)
    addresses.add()
    return repository


def called(capsys, *arguments):
    """(exit status, what went to stdout, the lines that went to stderr)"""
    status = main(list(arguments))
    printed = capsys.readouterr()
    return status or 0, printed.out, printed.err.splitlines()


class TestCheck:
    def test_a_sound_repository_has_no_problem(self, site_repository, capsys):
        assert called(capsys, "check") == (0, "2 claims in 1 notebooks, 2 records: no problems\n", [])

    def test_every_problem_is_listed_and_counted(self, site_repository, capsys):
        repository = site_repository
        line = repository.add_to_page("It takes 12 GiB, or [[tiny:peak-memry]].")
        edited = repository.edit(repository.source, "# A notebook of the tests.", "# It takes 7 GiB.")
        repository.notebook.with_stem("stray").write_bytes(repository.notebook.read_bytes())
        status, out, problems = called(capsys, "check")
        assert status == 1 and out == f"2 claims in 1 notebooks, 2 records: {len(problems)} problems\n"
        for start in (
            f"docs/index.md:{line}: a figure typed by hand: 12 GiB",
            f"docs/index.md:{line}: unknown figure [[tiny:peak-memry]]",
            "notebooks/stray.ipynb: there is no stray.py",
            f"notebooks/tiny.py:{edited}: cell 1 is not the one in tiny.ipynb: its words differ",
            f"notebooks/tiny.py:{edited}: a figure typed by hand: 7 GiB",
        ):
            assert [problem for problem in problems if problem.startswith(start)], (start, problems)
        assert all(". Fix: " in problem for problem in problems)

    def test_a_broken_record_ends_it_with_one_line(self, repository, capsys):
        repository.exact.write_text("{")
        status, out, problems = called(capsys, "check")
        assert (status, out) == (1, "")
        assert problems[0].startswith("results/tiny/exact.json:1: the record is not whole JSON") and len(problems) == 1

    def test_in_an_empty_folder_it_fails(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        status, _, problems = called(capsys, "check")
        assert (
            status == 1 and problems[0] == "notebooks: there is no notebook. Fix: run from the root of the repository"
        )

    def test_as_a_program_it_ends_with_one(self, repository):
        repository.add_to_page("It takes 12 GiB.")
        done = subprocess.run([sys.executable, "-m", "evidence", "check"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "a figure typed by hand: 12 GiB" in done.stderr


class TestPair:
    def test_it_mends_what_check_says_of_the_install_cell(self, site_repository, capsys):
        repository = site_repository
        repository.edit(repository.source, '"transformers": "5.23.0"', '"transformers": "5.0.0"')
        line = 1 + repository.source.read_text().splitlines().index(notebooks.INSTALL.splitlines()[0])
        what = f"{repository.source}:{line}: the first code cell is not the install cell of this version. Fix: run `make pair`"
        assert called(capsys, "check")[2][0] == what
        assert called(capsys, "pair") == (0, "", [])
        assert called(capsys, "check")[0] == 0


class TestRecordAndVerify:
    @pytest.mark.parametrize("command", ["record", "verify"])
    def test_an_unknown_notebook_gets_the_nearest_name_and_nothing_runs(self, repository, capsys, monkeypatch, command):
        monkeypatch.setattr(runs, command, lambda *arguments, **options: pytest.fail("it ran"))
        status, out, problems = called(capsys, command, "tiny", "tinny")
        assert (status, out) == (1, "")
        assert problems == [
            "notebooks/tinny.py: there is no notebook tinny (did you mean tiny?). Fix: take one of tiny"
        ]

    @pytest.mark.parametrize("command", ["record", "verify"])
    def test_without_a_name_every_notebook_runs(self, repository, capsys, monkeypatch, command):
        (repository.source.parent / "other.py").write_text(repository.source.read_text())
        ran = []
        monkeypatch.setattr(runs, command, lambda name, say: ran.append(name) or [])
        assert called(capsys, command)[0] == 0 and ran == ["other", "tiny"]
        assert called(capsys, command, "tiny")[0] == 0 and ran == ["other", "tiny", "tiny"]

    @pytest.mark.parametrize("command", ["record", "verify"])
    def test_a_notebook_whose_own_packages_are_missing_is_left_out_unless_it_is_named(
        self, repository, capsys, monkeypatch, command
    ):
        (repository.source.parent / "other.py").write_text(repository.source.read_text())
        own = notebooks.FOLDER.parent / "requirements" / "other.txt"
        own.parent.mkdir(exist_ok=True)
        own.touch()
        ran = []
        monkeypatch.setattr(runs, command, lambda name, say: ran.append(name) or [])
        status, out, problems = called(capsys, command)
        missing = "the packages of this notebook are not in .venv/other. Fix: make install"
        assert (status, ran) == (0, ["tiny"]) and f"left out: notebooks/other.py: {missing}" in out + " ".join(problems)
        assert called(capsys, command, "other") == (1, "", [f"notebooks/other.py: {missing}"]) and ran == ["tiny"]


class TestAPythonThatLacksAPackage:
    def run(self, missing, *arguments):
        program = (
            f"import runpy, sys; sys.modules.update(dict.fromkeys({missing}));"
            f"sys.argv = ['evidence', *{arguments}]; runpy.run_module('evidence', run_name='__main__')"
        )
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    @pytest.mark.parametrize("missing", ["jsonschema", "jupytext"])
    def test_is_told_which_and_what_to_install(self, repository, missing):
        done = self.run([missing], "record")
        what = f"evidence: this python ({sys.executable}) lacks {missing}"
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"{what}. Fix: {sys.executable} -m pip install '.[examples]'\n"

    def test_records_without_those_that_only_pages_need(self, repository):
        done = self.run(["markdown", "pymdownx", "pygal", "mkdocs"], "record", "tinny")
        assert done.returncode == 1 and "there is no notebook tinny (did you mean tiny?)" in done.stderr


class TestPort:
    def occupy(self, monkeypatch, taken, error=OSError):
        """Lets the ports in `taken` be in use."""

        class Socket(socket.socket):
            def bind(self, address):
                if address[1] in taken:
                    raise error

        monkeypatch.setattr(socket, "socket", Socket)

    def test_a_free_one_passes_silently(self, monkeypatch, capsys):
        self.occupy(monkeypatch, ())
        assert called(capsys, "port", "8000") == (0, "", [])

    def test_one_in_use_is_told_the_next_free(self, monkeypatch, capsys):
        self.occupy(monkeypatch, (8000, 8001))
        assert called(capsys, "port", "8000") == (1, "", ["Makefile: port 8000 is in use. Fix: PORT=8002 make serve"])

    def test_no_free_one_is_said(self, monkeypatch, capsys):
        self.occupy(monkeypatch, range(65536))
        problem = (
            "Makefile: ports 8000 to 8099 are in use. Fix: end what listens there, or choose another with PORT=..."
        )
        assert called(capsys, "port", "8000") == (1, "", [problem])
        assert called(capsys, "port", "65530")[2][0].startswith("Makefile: ports 65530 to 65535 are in use")

    @pytest.mark.parametrize("number", ["0", "65536", "99999"])
    def test_a_number_that_is_no_port_is_said(self, capsys, number):
        problem = f"Makefile: {number} is no port. Fix: choose one from 1024 to 65535: PORT=8000 make serve"
        assert called(capsys, "port", number) == (1, "", [problem])

    def test_one_that_only_root_may_use_is_said(self, monkeypatch, capsys):
        self.occupy(monkeypatch, (80,), PermissionError)
        assert called(capsys, "port", "80") == (
            1,
            "",
            ["Makefile: port 80 is reserved. Fix: choose one from 1024 to 65535"],
        )
