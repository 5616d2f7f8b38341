"""One way to say what is wrong: file and line, what, the nearest right thing, the fix."""

import difflib
import re
from pathlib import Path


class Problem(Exception):
    """Something a reader or an author can mend. `str()` is the whole message, one line long."""

    def __init__(self, where, what, fix, line=None):
        self.where, self.line, self.what, self.fix = str(where), line, re.sub(r"\s*\n\s*", " ", what), fix
        super().__init__(f"{shown(where)}{f':{line}' if line else ''}: {self.what}. Fix: {fix}")


def shown(path):
    """The path as seen from the working directory, as editors and terminals link it."""
    try:
        return Path(path).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def nearest(name, names):
    """' (did you mean x?)' for the name most like `name`, or an empty string."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" (did you mean {found[0]}?)" if found else ""


def line_of(text, fragment, occurrence=1):
    """The number of the first line (or of the second, ...) that holds `fragment`, or None."""
    found = [number for number, line in enumerate(text.splitlines(), 1) if fragment in line]
    return found[occurrence - 1] if len(found) >= occurrence else None


def read_text(path, fix="save it as UTF-8"):
    """The text of a file; one that is not UTF-8 (cut inside a character, of another encoding) is a Problem."""
    content = Path(path).read_bytes()
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise Problem(path, f"not UTF-8 text ({error.reason})", fix, content.count(b"\n", 0, error.start) + 1) from None
