"""Programs on several processes: their output, their failures, and an end in every case."""

import time

import psutil
import pytest

from evidence.launch import LaunchError, run_ranks

TALK = "import os, sys; print('rank', os.environ['RANK'], *sys.argv[1:]); print('aside', file=sys.stderr)"
FAIL = "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('no such layer')"
HANG = "import os, pathlib, time\npathlib.Path(os.environ['RANK']).write_text(str(os.getpid()))\nprint('waiting', flush=True)\ntime.sleep(600)"


@pytest.fixture
def program(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def test_a_run_gives_what_each_rank_wrote(program):
    run = run_ranks(program(TALK), "an", 7, processes=2)
    assert run.stdout == ["rank 0 an 7\n", "rank 1 an 7\n"]
    assert run.stderr == ["aside\n"] * 2
    assert run.returncode == 0


def test_a_rank_that_fails_is_an_error_with_the_last_lines_of_every_rank(program):
    with pytest.raises(LaunchError) as caught:
        run_ranks(program(FAIL))
    message = str(caught.value)
    assert message.startswith("program.py on 2 processes: exit status 1.")
    assert "--- rank 0, last lines\n(nothing)" in message
    assert message.index("--- rank 1, last lines") < message.index("ValueError: no such layer")


def test_unchecked_a_failure_is_a_result(program):
    run = run_ranks(program(FAIL), check=False)
    assert run.returncode != 0 and "no such layer" in run.stderr[1]


def test_a_run_that_hangs_is_ended_with_every_process_of_it(program, tmp_path):
    began = time.monotonic()
    run_ranks(program(TALK))
    seconds = 2 + round(2 * (time.monotonic() - began))  # enough to start
    with pytest.raises(LaunchError, match=rf"not finished after {seconds} s, so all of it was ended") as caught:
        run_ranks(program(HANG), timeout=seconds, folder=tmp_path)
    assert str(caught.value).count("waiting") == 2
    started = [int((tmp_path / rank).read_text()) for rank in "01"]
    assert not [pid for pid in started if psutil.pid_exists(pid)]


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LaunchError, match=r"absent\.py"):
        run_ranks(tmp_path / "absent.py", processes=1)
