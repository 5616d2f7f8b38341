"""docs/evidence/index.md: what it says about figures is what the code does."""

import getpass
import re
import socket

from programs import ROOT

from evidence import measure, records, schema
from evidence.site.popovers import KIND_MEANS

PAGE = (ROOT / "docs" / "evidence" / "index.md").read_text()


def test_the_page_explains_every_kind_and_no_other():
    table = PAGE.split("{ #kinds }")[1].split("\n\nKinds are")[0]
    assert set(re.findall(r"\*\*(\w+)\*\*", table)) == set(schema.KINDS) == set(KIND_MEANS)


def test_exact_figures_must_agree_within_one_part_in_a_hundred():
    assert not records.differs(100.9, 100)
    assert records.differs(101.1, 100)
    assert records.differs(0.001, 0)


def test_variants_take_turns_and_the_fastest_repeat_counts():
    order = []
    timings = measure.interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2, warmup=1)
    assert order == ["a", "b"] * 3
    assert timings["a"].best == min(timings["a"].seconds)
    assert len(timings["b"].seconds) == 2


def test_no_record_and_no_notebook_names_a_person_a_host_or_a_folder_of_the_machine():
    paths = [*(ROOT / "results").glob("*/*.json"), *(ROOT / "notebooks").glob("*.ipynb")]
    assert len(paths) > 2
    host = re.compile(rf"\b{re.escape(socket.gethostname())}\b")
    written = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").rglob("*.py"), *(ROOT / "evidence").rglob("*.py")]
    ordinary = any(host.search(path.read_text()) for path in written)  # a machine that is called "gpu" or "server"
    for path in paths:
        text = path.read_text()
        assert ordinary or not host.search(re.sub(r"https://[^\s\"]+", "", text)), path.name  # a source may hold a word such as "vm"
        assert f"/{getpass.getuser()}/" not in text, path.name
        assert "/site-packages/" not in text, path.name
