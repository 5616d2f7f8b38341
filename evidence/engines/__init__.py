"""What pages say of inference engines, against the engines' own wheels: options, defaults, messages, requirements.

transformers and torch are run by the tests. An engine needs a GPU, so nothing fails here when vLLM or SGLang changes. Its wheel can be
read without one. Each row of the .yml files beside this one ties words of a page to what must stand in a file of a wheel:

    package: vllm         # on PyPI
    cited_as: vLLM 0.33   # each page of the rows names the version so, once; not where a row says undated: true
    read: 0.33.0          # the version in which the rows were read
    source: true          # only where the package has to be taken as a source archive
    options:              # where options of its command line are declared, and in which form
      in: [vllm/engine/arg_utils.py]
      as: '"{option}"'    # {field} is the option as the name of a field: max_loras
    rows:
    - page: docs/inference/servers.md   # or a list, where several say it
      option: --max-loras               # words of the page, and an option that must be there
    - page: docs/inference/servers.md
      says: by default one              # words of the page
      in: vllm/config/lora.py           # a file of the wheel, or a pattern; METADATA is its list of requirements
      find: 'max_loras: int = Field(default=1'   # what must stand there. Without it: the words of the page
    - page: ...
      says: ...
      in: ...
      match: default=(1|2)\b        # the same as a regular expression
      lacks: bitsandbytes           # what must not stand there

Blanks and line breaks count as one blank, and string literals that follow each other as one, because messages are broken over lines.
"""

import fnmatch
import functools
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "performance-and-scalability" / "engines"
# Engines are made for Linux on x86-64 and for this Python: they are read, so they need not fit the machine at hand.
PYTHON = "3.12"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(40, 16, -1)] + ["manylinux2014_x86_64", "any"]
TEXT = (".py", ".md", ".txt", ".c", ".cpp", ".h", ".hpp", ".cu", ".cuh")
LONG = 20  # characters that are not found in another file by chance
SHOWN = 160  # characters of a file in a report
FIELDS = {"page", "option", "says", "in", "find", "match", "lacks", "undated"}


class Failed(Exception):
    """No answer: without network, or with a wrong row."""


@dataclass(frozen=True)
class Row:
    package: str
    pages: tuple
    says: str
    files: tuple  # patterns
    find: str | None = None
    match: str | None = None
    lacks: str | None = None
    option: bool = False
    undated: bool = False


@dataclass(frozen=True)
class Engine:
    package: str
    cited_as: str
    read: str
    source: bool
    rows: tuple


def load(folder=HERE):
    """The engines of the .yml files, by package."""
    engines = {}
    for path in sorted(Path(folder).glob("*.yml")):
        kept = yaml.safe_load(path.read_text(encoding="utf-8"))
        options = kept.get("options", {})
        rows = tuple(_row(kept["package"], row, options, path) for row in kept["rows"])
        engines[kept["package"]] = Engine(
            kept["package"], kept["cited_as"], str(kept["read"]), bool(kept.get("source")), rows
        )
    return engines


def _row(package, row, options, path):
    pages = tuple([row["page"]] if isinstance(row.get("page"), str) else row.get("page", ()))
    says = row.get("says") or row.get("option")
    if not pages or not says or row.keys() - FIELDS or ("option" in row) == ("in" in row):
        raise Failed(
            f"{path.name}: {row}: a row has page, and option or says and in; find, match, lacks, undated beside them"
        )
    files = row.get("in") or options["in"]
    find = row.get("find")
    if option := row.get("option"):
        find = options["as"].format(option=option, field=option.lstrip("-").replace("-", "_"))
    if find is None and "match" not in row and "lacks" not in row:
        find = says
    return Row(
        package,
        pages,
        one_blank(says),
        (files,) if isinstance(files, str) else tuple(files),
        find and one_blank(find),
        row.get("match"),
        row.get("lacks") and one_blank(row["lacks"]),
        "option" in row,
        bool(row.get("undated")),
    )


def one_blank(text):
    return " ".join(text.split())


def read_whole(text):
    """Text as rows are compared with it: literals that follow each other are joined, blanks are one."""
    return one_blank(re.sub(r"""(["'])\s*\n\s*[a-zA-Z]{0,2}\1""", "", text))


class Archive:
    """The files of a wheel or of a source archive, by their path in it."""

    def __init__(self, path):
        self.path = Path(path)
        self._tar = None
        if self.path.suffix == ".whl":
            self._zip = zipfile.ZipFile(self.path)
            self.names = self._zip.namelist()
        else:  # one pass: to look for one file after the other unpacks all before it
            with tarfile.open(self.path) as archive:
                members = (
                    member for member in archive if member.isfile() and member.name.endswith((*TEXT, "PKG-INFO"))
                )
                self._tar = {member.name.partition("/")[2]: archive.extractfile(member).read() for member in members}
            self.names = list(self._tar)

    @functools.cache  # noqa: B019 - as many archives as engines, for the time of one command
    def text(self, name):
        return read_whole(
            (self._tar[name] if self._tar else self._zip.read(name)).decode(
                "latin-1" if name.endswith(".so") else "utf-8", "replace"
            )
        )

    def matching(self, pattern):
        if pattern == "METADATA":
            return [name for name in self.names if re.fullmatch(r"[^/]+\.dist-info/METADATA|PKG-INFO", name)]
        return fnmatch.filter(self.names, pattern)

    @functools.cached_property
    def version(self):
        (name,) = self.matching("METADATA")
        return re.search(r"\bVersion: (\S+)", self.text(name)[:400].replace("Metadata-Version", "")).group(1)


HOLDS, ELSEWHERE, CHANGED = "holds", "elsewhere", "changed"


def judge(row, archive):
    """(one of the three, what stands there now)."""
    names = [name for pattern in row.files for name in archive.matching(pattern)]
    if not names:
        return _elsewhere(row, archive, f"there is no file {' or '.join(row.files)}")
    texts = {name: archive.text(name) for name in names}
    if row.lacks and (holder := next((name for name, text in texts.items() if row.lacks in text), None)):
        start = texts[holder].index(row.lacks)
        return CHANGED, f"{holder} has it now: {_excerpt(texts[holder], start)}"
    if row.find and not any(row.find in text for text in texts.values()):
        return _elsewhere(row, archive, _nearest(row.find, texts))
    if row.match and not any(re.search(row.match, text) for text in texts.values()):
        words = re.split(r"[\\.^$*+?{}\[\]|()]", row.match.replace("\\b", "").replace("\\(", "("))[0]
        return CHANGED, _nearest(words, texts, row.match)
    return HOLDS, ""


def _elsewhere(row, archive, instead):
    if row.find and len(row.find) >= LONG and not row.option:
        for name in archive.names:
            if name.endswith(TEXT) and row.find in archive.text(name):
                return ELSEWHERE, name
    return CHANGED, instead


def _nearest(words, texts, sought=None):
    """Where the longest beginning of these words stands in the files, and what follows it there."""
    best = (0, "", 0)
    for name, text in texts.items():
        low, high = 0, len(words)
        while low < high:  # a beginning is there if each shorter one is
            middle = (low + high + 1) // 2
            low, high = (middle, high) if words[:middle] in text else (low, middle - 1)
        if low > best[0]:
            best = (low, name, text.index(words[:low]))
    length, name, start = best
    if length < min(6, len(words)):
        return f"nothing like {sought or words!r} in {', '.join(texts) if len(texts) < 4 else f'{len(texts)} files'}"
    return f"{name}: {_excerpt(texts[name], start)}"


def _excerpt(text, start):
    return text[max(0, start - 20) : start + SHOWN]


def line_of(says, page):
    """The line of a page in which these words begin; None if it has them no more."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    found = re.search(r"\s+".join(map(re.escape, says.split())), text)
    return found and text.count("\n", 0, found.start()) + 1


def download(engine, version=None, cache=CACHE, tell=print):
    """The newest archive of a package, or that of a version, from pip; read from the cache where pip has put it there before."""
    folder = Path(cache) / engine.package
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
    ]
    if (
        engine.source
    ):  # pip asks a source archive for its metadata, which runs the package's build tool, but builds nothing
        command += ["--no-binary", engine.package]
    else:
        command += ["--only-binary", ":all:", "--python-version", PYTHON]
        command += [part for platform in PLATFORMS for part in ("--platform", platform)]
    command += [f"{engine.package}=={version}" if version else engine.package]
    said, kept = [], None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout:
            said.append(line.rstrip())
            if found := re.search(r"(?:Saved|File was already downloaded) (.+\.(?:whl|tar\.gz))", line):
                kept = found.group(1)
            elif "Downloading" in line and ".metadata" not in line:
                tell(f"  {line.strip()}")
    if process.returncode or not kept:
        last = "\n  ".join([line for line in said if "ERROR" in line][-3:] or said[-3:])
        raise Failed(
            f"{engine.package}: pip did not bring it. Is there a network, and such a version? pip said:\n  {last}"
        )
    return Archive(kept)
