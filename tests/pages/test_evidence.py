"""docs/evidence/index.md: what it says about figures is what the code does."""

import getpass
import re
import socket
from pathlib import Path

import again
import pytest

from evidence import claims, measure, records
from evidence.site.pages import KIND_MEANS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "evidence" / "index.md").read_text()
STYLE = (ROOT / "docs" / "assets" / "site.css").read_text()


@pytest.fixture(autouse=True)
def outside_any_record(monkeypatch):
    monkeypatch.delenv("EVIDENCE_VERIFY", raising=False)


def test_the_page_explains_every_kind_and_no_other():
    table = PAGE.split("{ #kinds }")[1].split("\n\nKinds are")[0]
    assert set(re.findall(r"\*\*(\w+)\*\*", table)) == set(records.KINDS) == set(KIND_MEANS)


@pytest.mark.parametrize("kind", [kind for kind in records.KINDS if kind != "measured"])
def test_each_kind_has_its_own_underline(kind):
    """Measured is the plain underline that `.claim` draws; the others differ from it and from each other."""
    styles = dict(re.findall(r"\.claim-(\w+) \{[^}]*text-decoration-style: (\w+)", STYLE))
    assert kind in styles
    assert len(set(styles.values())) == len(styles)


def test_a_claim_without_a_bound_is_refused_unless_it_is_cited():
    claims.start("example")
    with pytest.raises(claims.ClaimError, match="give a bound"):
        claims.claim("speed", "A method is faster than another", 2.0, "x", kind="measured")
    claims.claim("quoted", "What somebody else measured", 2.0, "x", kind="cited", source="https://example.org")


def test_a_run_that_breaks_a_bound_fails_and_only_what_is_measured_may_be_measured_again():
    claims.start("example")
    for kind, error in (("measured", claims.MeasuredOutOfBound), ("traced", claims.ClaimError)):
        with pytest.raises(claims.ClaimError, match="is under the bound") as caught:
            claims.claim("speed", "A method is faster than another", 0.9, "x", kind=kind, at_least=1.1)
        assert caught.type is error


def test_exact_figures_must_agree_within_one_part_in_a_hundred():
    assert records.EXACT == ("derived", "traced")
    assert not records.differs(100.9, 100)
    assert records.differs(101.1, 100)
    assert records.differs(0.001, 0)


def test_a_test_run_traces_models_of_two_and_of_four_layers_and_a_verification_every_layer():
    """That the line through two shallow models gives what a deep one gives is tested in tests/test_trace.py."""
    assert 'kernel["EVIDENCE_LAYERS"] = "2,4"' in (ROOT / "conftest.py").read_text(encoding="utf-8")
    assert {"EVIDENCE_LAYERS", "EVIDENCE_SECONDS"} <= set(again.OF_THE_TESTS)  # taken away for a verification


def test_variants_run_in_turn_and_the_fastest_repeat_counts(monkeypatch):
    monkeypatch.delenv("EVIDENCE_SECONDS")  # as for a record
    order = []
    timings = measure.interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2, warmup=1)
    assert order == ["a", "b"] * 3
    assert timings["a"].best == min(timings["a"].seconds)
    assert len(timings["b"].seconds) == 2


def test_in_the_tests_the_warm_up_is_a_repeat_too():
    order = []
    timings = measure.interleaved({"a": lambda: order.append("a")}, repeats=2, warmup=1)
    assert len(timings["a"].seconds) == len(order) == 3


def test_no_record_and_no_notebook_names_a_person_a_host_or_a_folder_of_the_machine():
    paths = [*(ROOT / "results").glob("*/*.json"), *(ROOT / "notebooks").glob("*.ipynb")]
    assert len(paths) > 2
    host = re.compile(rf"\b{re.escape(socket.gethostname())}\b")
    for path in paths:
        text = path.read_text()
        assert not host.search(text), path.name
        assert f"/{getpass.getuser()}/" not in text, path.name
        assert "/site-packages/" not in text, path.name
