"""What must be in no tracked file is named with its line. Seeded words are written in parts, so that this file holds none."""

import shutil
from pathlib import Path

import pytest

from evidence.site import hygiene

ROOT = Path(__file__).resolve().parents[3]
LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"


@pytest.fixture
def problems_of(tmp_path, monkeypatch):
    """The problems of one file with this text after a first line."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", "pyproject.toml")

    def found(text, name="docs/page.md"):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"First line.\n{text}\n")
        return [str(problem) for problem in hygiene.check([path])]

    return found


@pytest.mark.parametrize(
    "secret",
    [
        f"hf_{LETTERS[:34]}",
        f"github_pat_{LETTERS}",
        f"sk-proj-{LETTERS}",
        f"AKIA{'ABCDEFGH' * 2}",
        f'api_key = "{LETTERS[10:30]}9"',
        f"HUB_TOKEN={LETTERS[10:30]}9",
        f"wandb login {'0123456789abcdef0123' * 2}",
    ],
)
def test_a_secret_is_named_and_not_repeated(problems_of, secret):
    (problem,) = problems_of(f"x\nuse {secret} here")
    assert problem.startswith("docs/page.md:3: what looks like a secret (")
    assert problem.endswith("Fix: take it out, and revoke it: whoever has the history has it")
    assert LETTERS[:8] not in problem


@pytest.mark.parametrize(
    "text",
    [
        'token = os.environ["HF_TOKEN"]',
        "pad_token='<pad>'",
        "hub_token=None, hf_device_map = {}",
        "sha256:" + "0123456789abcdef" * 4,
        "max_new_tokens = 128, password = input()",
        "the api_key = your_key_of_the_service",
    ],
)
def test_what_only_speaks_of_secrets_passes(problems_of, text):
    assert problems_of(text, "snippets/a.py") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Ask jane.doe" + "@company.com.", "an e-mail address: jane.doe" + "@company.com"),
        ("In /home/" + "jane/models.", "a path of one machine: /home/" + "jane"),
        ("In /root" + "/.cache/hub.", "a path of one machine: /root" + "/."),
        ("In /work" + "/main/x.py.", "a path of one machine: /work" + "/m"),
        ("In /Users" + "/jane.", "a path of one machine: /Users" + "/jane"),
        ("In C:\\" + "Users\\jane.", "a path of one machine: C:\\" + "Users\\jane"),
        ("In /tmp/" + "tmpab12cd.", "a path of one machine: /tmp/" + "tmpab12cd"),
        ("Its col" + "our.", "misspelt: col" + "our"),
    ],
)
def test_what_must_be_in_no_file_is_named(problems_of, text, what):
    (problem,) = problems_of(text)
    assert problem.startswith(f"docs/page.md:2: {what}")
    assert ". Fix: " in problem


@pytest.mark.parametrize(
    "text",
    [
        "Clone git@github.com:a/b.git, write to you@example.org, and take a@b or x @ y.",
        "In /home/user/data, ~/work, $HOME, /tmp/out, C:\\data, https://example.org/root/x and /usr/lib.",
        "The optimizer tokenizes in color.",
    ],
)
def test_what_only_looks_like_it_passes(problems_of, text):
    assert problems_of(text) == []


def test_a_run_may_not_leave_a_path_in_an_executed_notebook(problems_of):
    (problem,) = problems_of('"text": "saved to /home/' + 'jane/out"', "notebooks/a.ipynb")
    assert problem.startswith("notebooks/a.ipynb:2: a path of one machine")


def test_what_others_wrote_keeps_its_spelling_and_names(problems_of):
    assert problems_of("Its col" + "our, by jane" + "@company.com", "tests/axe-core/README.md") == []


def test_a_large_file_is_named_unless_it_is_listed(problems_of, monkeypatch):
    (problem,) = problems_of("a" * 1_000_000, "docs/assets/large.js")
    assert problem.startswith("docs/assets/large.js: 1,000,013 bytes; a file of the repository has at most 1,000,000")
    monkeypatch.setattr(hygiene, "LARGE_ALLOWED", {"docs/assets/large.js"})
    assert problems_of("a" * 1_000_000, "docs/assets/large.js") == []


def test_a_file_of_bytes_is_not_read_as_text(problems_of, tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\0\xff")
    assert hygiene.check([Path("a.png")]) == []


def test_nothing_to_check_fails():
    (problem,) = hygiene.check([])
    assert str(problem).startswith(".: there is no file to check")
