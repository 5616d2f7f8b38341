"""The code behind a record: its notebook's script at the commit that brought the record, so that a link to a line stays true.

Asks git three times, whatever the number of records. Outside of a repository, and for a record that is not committed,
there is no such code.
"""

import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Code:
    commit: str
    text: str

    def line_of(self, name):
        """The number of the line where a claim is named, be it by an f-string; None where there is no such line."""
        quoted = rf"""["']{re.escape(name)}["']"""
        found = re.search(rf"claim\(\s*{quoted}", self.text) or re.search(quoted, self.text) or self._f_string(name)
        return self.text.count("\n", 0, found.end()) + 1 if found else None

    def _f_string(self, name):
        """The f-string that gives this name, with the most letters of it."""
        fitting = []
        for written in re.finditer(r"""claim\(\s*f(["'])((?:(?!\1).)+)\1""", self.text):
            fixed = re.split(r"\{.*?\}", written[2])
            if re.fullmatch("[a-z0-9-]+".join(map(re.escape, fixed)), name):
                fitting.append((len("".join(fixed)), written))
        return max(fitting, key=lambda entry: entry[0])[1] if fitting else None


@lru_cache(maxsize=1)
def codes(results, files):
    """{path of a record: its Code} of those that are committed as they are. files: their state, the key of the cache."""
    log = _git(results, "log", "--format=%H", "--name-only", "--relative", "--", ".")
    edited = _git(results, "diff", "--name-only", "--relative", "HEAD", "--", ".")
    if log is None or edited is None:
        return {}
    commits, commit = {}, ""
    for line in filter(None, log.decode().splitlines()):
        if re.fullmatch(r"[0-9a-f]{40,64}", line):
            commit = line
        else:
            commits.setdefault(line, commit)  # the newest comes first
    scripts = {
        Path(results, path): (commit, f"{commit}:../notebooks/{Path(path).parent.name}.py")
        for path, commit in commits.items()
        if path not in edited.decode().splitlines()
    }
    texts = _texts(results, {script for _, script in scripts.values()})
    return {path: Code(commit, texts[script]) for path, (commit, script) in scripts.items() if script in texts}


def _texts(folder, objects):
    """{object: its text} of those that the repository has."""
    objects, found = sorted(objects), {}
    answer = _git(folder, "cat-file", "--batch", input="".join(f"{name}\n" for name in objects)) or b""
    for name in objects:
        head, _, answer = answer.partition(b"\n")
        if re.fullmatch(rb"\w+ blob \d+", head):
            size = int(head.split()[-1])
            found[name], answer = answer[:size].decode(), answer[size + 1 :]
    return found


def _git(folder, *arguments, input=""):
    """What git prints; None where there is no git, no repository or no commit."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, input=input.encode(), capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout
