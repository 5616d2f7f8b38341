"""`make audit`: the bars it holds pages to, and that each broken one is named."""

from types import SimpleNamespace

import pytest

from evidence.problems import Problem
from evidence.site import audit


@pytest.fixture
def one_page(monkeypatch):
    """An audit of one page; what browser and Lighthouse say is given."""

    def run(weight=1000, hosts=(), found=(), scores=100):
        visit = SimpleNamespace(weight=weight, hosts=set(hosts), messages=[], fetched={"a.js": weight})
        monkeypatch.setattr(audit, "Visit", lambda browser, host, page: visit)
        monkeypatch.setattr(
            audit, "looks", lambda browser, host, page: [("phone", "dark", problem) for problem in found]
        )
        monkeypatch.setattr(
            audit, "lighthouse", lambda address, runs: {**dict.fromkeys(audit.GATES, scores), "performance": 50}
        )
        host, lines = SimpleNamespace(address="http://127.0.0.1/", pages=["a/"]), []
        broken = list(audit.pages(None, host, 1, (), lines.append))
        assert lines[1].split()[0] == "a/"
        return broken, lines

    return run


def test_a_page_that_holds_its_bars_breaks_none_and_performance_is_no_gate(one_page):
    broken, lines = one_page()
    assert broken == []
    assert lines[1].split() == ["a/", "1.0", "95", "0", "0", "100", "100", "100", "50"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"weight": 95_001}, "a/: a first visit fetches 95,001 bytes of at most 95,000: {'a.js': 95001}"),
        ({"hosts": ["fonts.example"]}, "a/: asks ['fonts.example']"),
        ({"found": ["image-alt: img"]}, "a/, phone dark: image-alt: img"),
        ({"scores": 99}, "a/: Lighthouse gives 99 for accessibility"),
    ],
)
def test_what_breaks_a_bar_is_named(one_page, wrong, message):
    broken, _ = one_page(**wrong)
    assert broken[0].startswith(message), broken


def test_a_missing_lighthouse_is_an_error_that_names_the_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem, match="Lighthouse is not installed. Fix: make audit"):
        audit.lighthouse("http://127.0.0.1/", 1)
