"""docs/dryrun.md, sentence by sentence: what it shows is what the commands print."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from programs import ROOT, SNIPPETS, run

import dryrun
from dryrun.models import config_file
from evidence.notebooks import project

FOLDER = SNIPPETS / "dryrun"
PAGE = (ROOT / "docs" / "dryrun.md").read_text()
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*\.?\d*(?:e[+-]\d+)?(?![\w-])")


def printed(words):
    done = subprocess.run([sys.executable, "-m", *words.split()], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def parts(text):
    """(its words, its numbers): a last digit may differ from one CPU to the next."""
    return NUMBER.sub("#", text).split(), [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("verb", ["train", "measured", "own", "days", "infer", "mac", "plan"])
def test_what_the_page_shows_is_what_the_command_prints(verb):
    words, numbers = parts(printed((FOLDER / f"{verb}.sh").read_text()))
    shown_words, shown_numbers = parts((FOLDER / f"{verb}.txt").read_text())
    assert words == shown_words, f"write it again: python -m $(cat snippets/dryrun/{verb}.sh) > snippets/dryrun/{verb}.txt"
    assert numbers == pytest.approx(shown_numbers, rel=0.02)


def test_the_program_says_of_each_gpu_whether_it_fits_and_how_fast_it_is():
    lines = run("dryrun/ask.py").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["rtx-4090", "l40s", "a100-sxm4-80", "8 x rtx-4090", "generation"]
    assert all("fits" in line and line.endswith("tokens/s") for line in lines[:3])


def test_the_example_of_the_readme_runs(capsys):
    (program,) = re.findall(r"```python\n(.+?)```", (ROOT / "dryrun" / "README.md").read_text(), re.S)
    exec(program, {})
    verdict, rate = capsys.readouterr().out.rsplit(maxsplit=1)
    assert "fit" in verdict and int(rate) > 0


def package():
    return tomllib.loads((ROOT / "dryrun" / "pyproject.toml").read_text())["project"]


def test_every_install_line_has_the_name_the_address_and_the_version_of_the_package():
    own, lines = project(), 0
    address = f"git+{own['urls']['Repository']}@v{own['version']}#subdirectory=dryrun"
    files = subprocess.run(["git", "grep", "-lE", "dryrun.* @ |pip install.*dryrun"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in set(files.splitlines()) - {"tests/pages/test_dryrun.py"}:
        text = (ROOT / name).read_text()
        for asked, where in re.findall(r"([\w-]*dryrun)(?:\[\w+\])? @ ([^\s\"\\]+)", text):
            lines += 1
            assert asked == package()["name"] and where in (address, "..."), name
        assert not re.search(r"pip install [^\n]*?(?<=['\"\s])dryrun(?![\w-])", text), f"{name}: `dryrun` on PyPI is another project"
    assert lines > 5


def test_the_readme_has_the_lines_of_the_page():
    assert (FOLDER / "install.sh").read_text() in (ROOT / "dryrun" / "README.md").read_text()


def test_a_message_asks_for_what_the_package_asks_for():
    assert f"pip install {' '.join(map(repr, package()['optional-dependencies']['trace']))}" == config_file.INSTALL


def test_a_folder_that_the_stranger_of_the_same_name_has_written_into_is_named_with_its_fix(tmp_path):
    shutil.copytree(ROOT / "dryrun", tmp_path / "dryrun", ignore=shutil.ignore_patterns("profiles", "__pycache__"))
    (tmp_path / "dryrun" / "__init__.py").write_text("class Dryrun: ...\n")
    done = subprocess.run([sys.executable, "-m", "dryrun", "gpus"], cwd=tmp_path, env={}, capture_output=True, text=True)
    assert done.returncode == 1 and f"error: {tmp_path}/dryrun/__init__.py is not ours" in done.stderr
    assert f"Fix: pip uninstall -y dryrun {package()['name']}, then install {package()['name']} again" in done.stderr


SKILL = (ROOT / "dryrun" / "SKILL.md").read_text()


@pytest.mark.parametrize("command", re.findall(r"^(dryrun .+?) +#", SKILL, re.M))
def test_what_programs_are_told_to_ask_is_answered_in_json(command):
    assert json.loads(printed(command))


def test_programs_are_told_names_that_are_in_the_answers():
    told = set(re.findall(r"`(\w+)`", SKILL.partition("## Read the answer")[2])) - {"task", "plan", "train", "infer", "users", "written"}
    step = json.loads(printed("dryrun train llama3.2-1b --gpu t4 --lora --rows 10 --price 1 --json"))
    of_change = {name for change in step["changes"] for name in change}
    assert told <= set(step) | of_change, told - set(step)


def test_the_package_is_of_the_same_version_and_address_as_the_project():
    ours, own = package(), project()
    assert (dryrun.__version__, ours["urls"]["Repository"]) == (own["version"], own["urls"]["Repository"])
    assert ours["scripts"] == own["scripts"], "whichever of the two is installed has the command"


def test_every_option_that_the_page_names_is_one_of_the_command():
    verbs = ("train", "infer", "plan", "models", "gpus", "bench", "validate")
    known = {word for verb in verbs for word in re.findall(r"--[\w-]+", printed(f"dryrun {verb} --help"))}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", PAGE)) <= known


def test_every_public_name_stands_on_the_page():
    assert set(re.findall(r"^::: dryrun\.(\w+)", PAGE, re.M)) == set(dryrun.__all__) - {"Model"}
