"""What pages say of an engine is compared with its wheel: a row that holds, one that changed, and one whose words left their page."""

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from evidence import engines
from evidence.engines import __main__ as command

ROOT = Path(__file__).parents[2]
CONFIG = """\
max_loras: int = Field(default=1)
MESSAGE = (
    f"LoRA rank {rank} is greater "
    "than the largest rank"
)
METHODS = ["awq", "gptq"]
"""
ROWS = """\
package: tiny-engine
cited_as: Tiny 0.2
read: 0.2.0
options:
  in: [tiny/arguments.py]
  as: '"{option}"'
rows:
- page: docs/page.md
  option: --max-loras
- page: docs/page.md
  says: one adapter by default
  in: tiny/config.py
  find: 'max_loras: int = Field(default=1'
- page: docs/page.md
  says: is greater than the largest rank
  in: tiny/config.py
- page: docs/page.md
  says: GPTQ and AWQ
  in: tiny/config.py
  match: METHODS = \\["awq", "gptq"
- page: docs/page.md
  says: no GGUF
  in: tiny/config.py
  lacks: '"gguf"'
- page: docs/page.md
  says: torch 2
  in: METADATA
  match: 'Requires-Dist: torch==2\\.'
"""
PAGE = """\
# Tiny

Tiny 0.2 takes `--max-loras`, and has one
adapter by default. It says `LoRA rank 32 is greater than the largest rank`. GPTQ and AWQ, no GGUF, torch 2.
"""


def wheel(folder, version="0.2.0", config=CONFIG, arguments='parser.add_argument("--max-loras")', **others):
    path = folder / f"tiny_engine-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/config.py", config)
        archive.writestr("tiny/arguments.py", arguments)
        archive.writestr(
            f"tiny_engine-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.4\nVersion: {version}\nRequires-Dist: torch==2.14\n",
        )
        for name, text in others.items():
            archive.writestr(f"tiny/{name}.py", text)
    return engines.Archive(path)


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "tiny.yml").write_text(ROWS)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    return engines.load(tmp_path / "rows")["tiny-engine"]


@pytest.fixture
def told(tiny, tmp_path, monkeypatch):
    """What `check` says of an archive, and its three numbers."""

    def said(archive):
        lines = []
        monkeypatch.setattr(command, "download", lambda *_: archive)
        counts = command.check(tiny, None, tmp_path, root=tmp_path, tell=lines.append)
        return "\n".join(lines), counts

    return said


def test_all_rows_hold_where_the_wheel_has_what_the_page_says(told, tmp_path):
    text, counts = told(wheel(tmp_path))
    assert counts == (6, 0, 0) and "changed" not in text and "against 0.2.0" in text


def test_a_changed_default_names_the_line_of_the_page_and_what_stands_there_now(told, tmp_path):
    text, counts = told(wheel(tmp_path, "0.3.0", CONFIG.replace("default=1", "default=4")))
    assert counts == (6, 1, 0)
    assert (
        "changed: docs/page.md:3: one adapter by default" in text
        and "tiny/config.py: max_loras: int = Field(default=4)" in text
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"arguments": 'parser.add_argument("--max-adapters")'}, '"--max-adapters")'),
        ({"config": CONFIG.replace('["awq"', '["fp8"')}, 'METHODS = ["fp8"'),
        ({"config": CONFIG.replace('"gptq"]', '"gptq", "gguf"]')}, "has it now"),
    ],
    ids=["an option that is gone", "an expression that matches no more", "a word that came"],
)
def test_each_kind_of_row_shows_what_changed(changed, words, told, tmp_path):
    text, counts = told(wheel(tmp_path, **changed))
    assert counts == (6, 1, 0) and words in text


def test_a_message_that_moved_to_another_file_still_holds_and_its_new_file_is_named(told, tmp_path):
    message = CONFIG[CONFIG.index("MESSAGE") : CONFIG.index("METHODS")]
    text, counts = told(wheel(tmp_path, config=CONFIG.replace(message, ""), lora=message))
    assert counts == (6, 0, 1) and "now in tiny/lora.py" in text


def test_a_file_that_is_gone_and_words_that_left_their_page_are_changes(told, tmp_path):
    archive = wheel(tmp_path)
    archive.names.remove("tiny/arguments.py")
    (tmp_path / "docs" / "page.md").write_text(PAGE.replace("GPTQ and AWQ", "GPTQ"))
    text, counts = told(archive)
    assert (
        counts[1] == 2
        and "there is no file tiny/arguments.py" in text
        and "docs/page.md does not say this any more" in text
    )


def test_a_source_archive_is_read_below_its_folder(tmp_path):
    path = tmp_path / "tiny_engine-0.2.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in (
            ("PKG-INFO", "Metadata-Version: 2.4\nVersion: 0.2.0\n"),
            ("vendor/arg.cpp", 'add("--parallel",\n  "slots "\n  "at once")'),
        ):
            member = tarfile.TarInfo(f"tiny_engine-0.2.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    read = engines.Archive(path)
    assert read.version == "0.2.0"
    row = engines.Row("tiny-engine", ("docs/page.md",), "slots", ("vendor/*.cpp",), find="slots at once")
    assert engines.judge(row, read) == (engines.HOLDS, "")


@pytest.mark.parametrize(
    "row",
    [
        "{page: docs/page.md}",
        "{page: docs/page.md, option: --a, in: b.py}",
        "{page: docs/page.md, says: a, in: b.py, finds: a}",
    ],
)
def test_a_row_that_asks_for_nothing_or_has_a_misspelled_field_is_refused(row, tmp_path):
    (tmp_path / "tiny.yml").write_text(f"{ROWS}- {row}\n")
    with pytest.raises(engines.Failed, match="a row has page, and option or says and in"):
        engines.load(tmp_path)


def test_without_a_network_it_says_so_and_ends_with_2(monkeypatch, capsys, tmp_path):
    command_line = [
        engines.sys.executable,
        "-c",
        "print('ERROR: No matching distribution found for vllm'); raise SystemExit(1)",
    ]
    real = subprocess.Popen
    monkeypatch.setattr(engines.subprocess, "Popen", lambda _, **options: real(command_line, **options))
    assert command.main(["vllm", "--cache", str(tmp_path)]) == 2
    assert (
        "vllm: pip did not bring it. Is there a network" in (told := capsys.readouterr().err)
        and "No matching distribution" in told
    )


def test_an_unknown_package_and_a_version_that_is_none_are_refused(capsys):
    assert command.main(["vlm"]) == 2 and "no rows for vlm: there are some for" in capsys.readouterr().err
    assert command.main(["--version", "vllm"]) == 2 and "write vllm==1.2.3" in capsys.readouterr().err


REAL = [(engine, row, page) for engine in engines.load().values() for row in engine.rows for page in row.pages]


def test_the_words_of_every_row_stand_on_their_page():
    gone = [f"{page}: {row.says}" for _, row, page in REAL if engines.line_of(row.says, ROOT / page) is None]
    assert not gone and len(REAL) > 80


def test_every_name_of_an_engine_that_nothing_installed_knows_is_in_a_row():
    elsewhere = yaml.safe_load((ROOT / "tests/data/names_elsewhere.yml").read_text())
    words = " ".join(f"{row.says} {row.find} {row.match}" for _, row, _ in REAL)
    ours = [
        name
        for program in ("vLLM", "vLLM for TPUs", "SGLang", "llama.cpp", "llama-cpp-python")
        for name in elsewhere[program]
    ]
    assert not [name for name in ours if name.removeprefix("D") not in words] and len(ours) > 40


def test_a_page_names_the_version_in_which_an_engine_was_read():
    pages = {(page, engine.cited_as) for engine, row, page in REAL if page.startswith("docs/") and not row.undated}
    assert not [f"{page}: {cited}" for page, cited in sorted(pages) if engines.line_of(cited, ROOT / page) is None]
