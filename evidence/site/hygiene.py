"""What must not be in any tracked file: secrets, addresses of people, paths of one machine, British or wrong spelling, and files
too large for a repository."""

import contextlib
import io
import re
import subprocess
from functools import cache
from pathlib import Path

from ..problems import Problem, read_text

MOST_BYTES = 1_000_000
LARGE_ALLOWED = {"fitting/data/published.json"}  # one line for each published measurement
# Made by others, or by a program from what others made.
NOT_OURS = re.compile(r"tests/axe-core/|tests/data/|LICENSE|requirements/.*\.txt$|.*package-lock\.json$")
# Written by a run or drawn; their words come from files that are read.
NO_PROSE = re.compile(r".*\.(ipynb|svg|json|png|ico)$|results/|addresses\.txt$")

TOKENS = {  # beside those that detect-secrets knows
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "GitHub token": r"\bgithub_pat_\w{22,}\b",
    "API key": r"\bsk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{32,}\b|\bAIza[\w-]{35}\b|\bsk_live_\w{16,}",
    "password or key": r"(?i)\b\w*(?:password|passwd|secret|api_?key|auth_?token|access_?token|hub_token|HF_TOKEN)['\"]?\s*[:=]\s*['\"]?"
    r"(?=[^\s'\"]*\d)(?=[^\s'\"]*[A-Za-z])[A-Za-z0-9+/_.-]{12,}['\"]?(?![\w(.\[])",
    "login with a key": r"\bwandb\s+login\s+[0-9a-f]{40}\b",
}
# They look for keys of services that nothing here uses, and take most of the time, or find version numbers.
LEFT_OUT = {"Public IP (ipv4)", "IBM Cloud IAM Key", "IBM COS HMAC Credentials", "SoftLayer Credentials", "Cloudant Credentials",
            "Artifactory Credentials"}  # fmt: skip
E_MAIL = re.compile(r"(?<![\w.@/:-])[\w.%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b(?!:)")
NO_PERSON = re.compile(
    r"(?i)(?:git|noreply|no-reply|user|you|name)@|@(?:[\w.-]+\.)?example\.(?:org|com|net)$|@users\.noreply\.github\.com$"
)
MACHINE_PATH = re.compile(
    r"(?<![\w.~])(?:/home/(?!user\b|you\b|\$|\{|<)[a-z][\w.-]*|/root/[\w.]|/work/[\w.]|/Users/(?!you\b|\$|\{|<)[A-Za-z]\w*|"
    r"[A-Z]:\\\\?Users\\\\?\w+|/tmp/(?:tmp|ipykernel_|pytest-)\w+)"
)


def tracked():
    """The files of the repository: those that git has, and those that it would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):  # a copy without git
        parts = ("site", "out", "dist")
        found = (path for path in Path().rglob("*") if path.is_file())
        listed = [
            p.as_posix() for p in found if not any(part in parts or part.startswith(".v") for part in p.parts[:-1])
        ]
    return sorted(Path(name) for name in set(listed) if name and Path(name).is_file())


def check(files=None):
    """All findings in the tracked files, as a list of Problems."""
    files = tracked() if files is None else files
    if not files:
        return [Problem(".", "there is no file to check", "run from the root of the repository")]
    problems, prose = [], []
    for path in files:
        size = path.stat().st_size
        if size > MOST_BYTES and path.as_posix() not in LARGE_ALLOWED:
            what = f"{size:,} bytes; a file of the repository has at most {MOST_BYTES:,}"
            problems.append(Problem(path, what, "make it smaller, or let a script fetch or make it"))
        elif b"\0" not in path.read_bytes():
            text = read_text(path)
            problems += secrets(path, text)
            if not NOT_OURS.match(path.as_posix()):
                problems += people_and_machines(path, text)
                if not NO_PROSE.match(path.as_posix()):
                    prose.append(path)
    return problems + misspelt(prose)


def _found(path, text, pattern, what, fix, refused=None):
    for match in re.finditer(pattern, text):
        if not (refused and refused.search(match[0])):
            yield Problem(path, what.format(_shown(match[0])), fix, text.count("\n", 0, match.start()) + 1)


def _shown(found):
    return " ".join(found.split())[:60]


@cache
def _rules():
    """(what it is, pattern) of the secrets that detect-secrets knows by their form."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    detectors = get_mapping_from_secret_type_to_class()
    by_form = {name: made() for name, made in detectors.items() if issubclass(made, RegexBasedDetector)}
    known = [(name, pattern) for name, made in by_form.items() if name not in LEFT_OUT for pattern in made.denylist]
    return known + [(name, re.compile(pattern)) for name, pattern in TOKENS.items()]


def secrets(path, text):
    """Tokens and keys. The message does not repeat them."""
    lines = set()
    for name, pattern in _rules():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if line not in lines:
                lines.add(line)
                fix = "take it out, and revoke it: whoever has the history has it"
                yield Problem(path, f"what looks like a secret ({name})", fix, line)


def people_and_machines(path, text):
    yield from _found(path, text, E_MAIL, "an e-mail address: {}", "name the project or a page instead", NO_PERSON)
    yield from _found(path, text, MACHINE_PATH, "a path of one machine: {}", "write it relative to the repository")


def misspelt(files):
    """What codespell finds, by the settings in pyproject.toml."""
    if not files:
        return []
    from codespell_lib import main as codespell

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        codespell(*map(str, files))
    found = re.findall(r"^(.+?):(\d+): (.+?) ==> (.+)$", said.getvalue(), re.M)
    return [Problem(path, f"misspelt: {word}", f"write {better}", int(line)) for path, line, word, better in found]
