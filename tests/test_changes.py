"""A figure that another run changes is listed in results/changes.jsonl, shown on a page and in a feed, and never lost."""

import datetime
import email.utils
import json
import os
import re
import xml.etree.ElementTree as etree
from pathlib import Path

import markdown
import pytest
from bs4 import BeautifulSoup
from pymdownx.superfences import SuperFencesException

from evidence import changes, notebooks, pages, records, twins
from evidence.__main__ import main
from evidence.problems import Problem

LIST = Path("results/changes.jsonl")
FIX = "restore it with `git checkout results/changes.jsonl`, or delete the line"
SOUND = {
    "date": "2026-01-02",
    "notebook": "tiny",
    "machine": "test-machine",
    "claim": "peak-memory",
    "was": "13\u00a0GiB",
    "is": "12.5\u00a0GiB",
}


def write(*changed):
    """The list, with a line for each that differs from SOUND so."""
    LIST.write_text("".join(json.dumps({**SOUND, **one}, ensure_ascii=False) + "\n" for one in changed))


def listed():
    return [(change["claim"], change["was"], change["is"]) for change in changes.load()]


def record_again(repository, *edits):
    for old, new in edits:
        repository.edit(repository.source, old, new)
    notebooks.record("tiny", say=print)


# A run lists what it changes


def test_the_first_record_of_a_notebook_is_no_change(repository):
    assert not LIST.exists() and changes.load() == []


def test_a_run_that_gives_the_same_figures_lists_nothing(repository):
    record_again(repository)
    assert not LIST.exists()


def test_a_changed_figure_is_one_line_with_date_machine_and_both_values_as_they_are_shown(repository):
    record_again(repository, ("peak = 12.5", "peak = 12.4"))
    date = records.load(repository.record).date
    assert LIST.read_text(encoding="utf-8") == (
        f'{{"date": "{date}", "notebook": "tiny", "machine": "test-machine", "claim": "peak-memory", '
        '"was": "12.5\u00a0GiB", "is": "12.4\u00a0GiB"}\n'
    )


def test_a_second_change_stands_under_the_first(repository):
    record_again(repository, ("peak = 12.5", "peak = 12.4"))
    first = LIST.read_text()
    record_again(repository, ("peak = 12.4", "peak = 12.3"))
    assert LIST.read_text().startswith(first)
    assert listed()[1:] == [("peak-memory", "12.4\u00a0GiB", "12.3\u00a0GiB")]


def test_a_figure_that_reads_the_same_has_not_changed(repository):
    record_again(repository, ("peak = 12.5", "peak = 12.5004"))
    assert not LIST.exists()


@pytest.mark.parametrize(("value", "told"), [(2.1, False), (2.5, False), (2.0, True), (2.6, True)])
def test_a_measured_figure_is_told_when_it_moved_by_more_than_a_tenth(repository, value, told):
    record_again(repository, ("2.3", str(value)))
    assert LIST.exists() is told


def test_a_measured_figure_in_another_unit_is_told_however_near_its_number(repository):
    record_again(repository, ('2.3, "x"', '2.3, "ms"'))
    assert listed() == [("step-speed", "2.3x", "2.3\u00a0ms")]


def test_a_figure_that_was_measured_and_is_traced_is_told_however_near(repository):
    record_again(repository, ('2.3, "x", kind="measured"', '2.4, "x", kind="traced"'))
    assert listed() == [("step-speed", "2.3x", "2.4x")]


def test_a_new_claim_and_one_that_is_gone_are_told(repository):
    record_again(repository, ('claim("peak-memory"', 'claim("top-memory"'))
    assert listed() == [("top-memory", None, "12.5\u00a0GiB"), ("peak-memory", "12.5\u00a0GiB", None)]


def test_a_claim_that_stops_to_apply_and_applies_again_is_told_both_times(repository):
    applies, not_here = '2.3, "x"', 'None, "x", because="not on this machine"'
    record_again(repository, (applies, not_here))
    record_again(repository, (not_here, applies))
    assert listed() == [("step-speed", "2.3x", None), ("step-speed", None, "2.3x")]


def test_another_machine_begins_without_changes(repository, monkeypatch):
    described = {**json.loads(repository.record.read_text())["machine"], "name": "other"}
    monkeypatch.setattr("evidence.machine.describe", lambda: described)
    record_again(repository, ("peak = 12.5", "peak = 12.4"))
    assert Path("results/tiny/other.json").exists() and not LIST.exists()


def test_a_broken_record_is_mended_by_recording_though_what_it_said_is_not_known(repository):
    repository.record.write_text("{")
    record_again(repository, ("peak = 12.5", "peak = 12.4"))
    assert not LIST.exists() and records.load(repository.record)


def test_a_broken_list_stops_a_run_before_it_begins_and_nothing_is_lost(repository, monkeypatch):
    LIST.write_text("{")
    before = repository.files()
    monkeypatch.setattr(notebooks, "_execute", lambda *arguments: pytest.fail("it ran"))
    with pytest.raises(Problem, match=r"^results/changes\.jsonl:1: the line is not whole JSON"):
        notebooks.record("tiny", say=print)
    assert repository.files() == before


def test_a_list_without_a_last_line_break_gets_one_before_the_next_change(repository):
    write({"claim": "step-speed"})
    LIST.write_text(LIST.read_text().rstrip("\n"))
    record_again(repository, ("peak = 12.5", "peak = 12.4"))
    assert [claim for claim, _, _ in listed()] == ["step-speed", "peak-memory"]


# replace: the notebook, the list, the record
@pytest.mark.parametrize(
    ("function", "call"), [("fsync", 1), ("fsync", 2), ("fsync", 3), ("replace", 1), ("replace", 2), ("replace", 3)]
)
def test_an_interrupted_run_loses_no_change(repository, monkeypatch, function, call):
    """Before the first file is replaced all are as before; after that, the run's repetition tells the change, and once."""
    repository.edit(repository.source, "peak = 12.5", "peak = 12.4")
    before, calls, original = repository.files(), [], getattr(os, function)

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            notebooks.record("tiny", say=print)
    assert function == "replace" and call > 1 or repository.files() == before
    assert not list(Path().rglob("*.part"))
    notebooks.record("tiny", say=print)
    ((day, told),) = changes.by_day(changes.load()).items()
    assert [(change["was"], change["is"]) for change in told["tiny"]] == [("12.5\u00a0GiB", "12.4\u00a0GiB")]
    assert list(changes.check()) == []


# A line that cannot be trusted is refused with file, line and fix


def refused(what, line=2, fix=FIX):
    with pytest.raises(Problem) as caught:
        changes.load()
    message = str(caught.value)
    assert message.startswith(f"results/changes.jsonl:{line}: ") and what in message, message
    assert message.endswith(f"Fix: {fix}")


def test_a_sound_list_is_read(repository):
    write({}, {"date": "2026-01-03", "was": None}, {"is": None})
    assert [change["date"] for change in changes.load()] == ["2026-01-02", "2026-01-03", "2026-01-02"]


def test_an_empty_list_is_one_without_changes(repository):
    LIST.write_text("")
    assert changes.load() == [] and list(changes.check()) == []


def test_a_list_cut_anywhere_is_whole_lines_or_refused(repository):
    write({}, {"claim": "step-speed"})
    whole = LIST.read_bytes()
    line = whole.index(b"\n")
    for end in range(1, len(whole) - 1):
        LIST.write_bytes(whole[:end])
        if end in (line, line + 1):
            assert len(changes.load()) == 1
        else:
            with pytest.raises(Problem, match=rf"^results/changes\.jsonl:{1 + (end > line)}: "):
                changes.load()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"wsa": "13\u00a0GiB"}, "the line: Additional properties are not allowed ('wsa' was unexpected)"),
        ({"is": 12.5}, "is: 12.5 is not of type 'string', 'null'"),
        ({"is": ""}, "is: '' does not match"),
        ({"is": "12\n"}, "is: '12\\n' does not match"),
        ({"is": "\x1b"}, "is: '\\x1b' does not match"),
        ({"is": "13\u00a0GiB"}, "peak-memory was 13\u00a0GiB and is the same"),
        ({"was": None, "is": None}, "peak-memory was None and is the same"),
        ({"claim": "Peak memory"}, "claim: 'Peak memory' does not match"),
        ({"machine": None}, "machine: None is not of type 'string'"),
        ({"notebook": "../tiny"}, "notebook: '../tiny' does not match"),
        ({"date": "20260102"}, "date: '20260102' does not match"),
        ({"date": "2026-02-30"}, "there is no date 2026-02-30"),
    ],
)
def test_a_wrong_key_or_value_names_its_line(repository, changed, what):
    write({}, changed, {})
    refused(what)


@pytest.mark.parametrize("key", SOUND)
def test_a_missing_key_names_its_line(repository, key):
    write({})
    with LIST.open("a") as file:
        file.write(json.dumps({name: value for name, value in SOUND.items() if name != key}) + "\n")
    refused(f"the line: '{key}' is a required property")


def test_a_change_from_the_future_is_refused_and_one_of_tomorrow_is_tomorrow_somewhere(repository):
    today = datetime.datetime.now(datetime.UTC).date()
    date = (today + datetime.timedelta(days=3)).isoformat()
    write({}, {"date": date})
    refused(f"the change is from the future ({date})", fix=f"set this machine's clock, then {FIX}")
    write({"date": (today + datetime.timedelta(days=1)).isoformat()})
    assert changes.load()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("", "the line is not whole JSON"),
        ("<<<<<<< HEAD", "the line is not whole JSON"),
        ("[]", "the line: [] is not of type 'object'"),
        ("null", "the line: None is not of type 'object'"),
        (json.dumps(SOUND), "the line is not as `make record` writes it"),
        (json.dumps(SOUND, ensure_ascii=False)[:-1] + ', "is": "1x"}', "the line is not as `make record` writes it"),
    ],
    ids=["empty", "a merge", "a list", "null", "escaped", "a key twice"],
)
def test_a_line_that_no_run_wrote_is_refused(repository, line, what):
    write({})
    with LIST.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    refused(what)


def test_a_list_cut_inside_a_character_is_refused(repository):
    write({}, {})
    whole = LIST.read_bytes()
    LIST.write_bytes(whole[: whole.rindex("\u00a0".encode()) + 1])
    refused("not UTF-8 text")


# The list and the records belong together


def test_check_names_a_change_that_its_record_does_not_show(repository, capsys):
    write({}, {"is": "12.4\u00a0GiB"})
    assert main(["check"]) == 1
    assert capsys.readouterr().err == (
        "results/changes.jsonl:2: peak-memory became 12.4\u00a0GiB, and results/tiny/test-machine.json says 12.5\u00a0GiB. "
        "Fix: restore both, or none (`git checkout results`), and run `make record NOTEBOOKS=tiny`\n"
    )


def test_check_names_a_broken_line(repository, capsys):
    LIST.write_text("{\n")
    assert main(["check"]) == 1
    assert capsys.readouterr().err.startswith("results/changes.jsonl:1: the line is not whole JSON")


@pytest.mark.parametrize(("name", "became"), [("peak-memory", None), ("step-speed", None), ("gone", "1x")])
def test_a_figure_said_to_be_gone_is_not_there_and_one_said_to_be_there_is(repository, name, became):
    write({"claim": name, "is": became})
    (problem,) = changes.check()
    assert f"{name} became {became or 'nothing'}, and" in str(problem)


def test_only_the_last_change_of_a_figure_is_what_its_record_shows(repository):
    write({"is": "12\u00a0GiB"}, {"was": "12\u00a0GiB"})
    assert list(changes.check()) == []


def test_a_measured_figure_may_have_moved_since_it_was_listed(repository):
    write({"claim": "step-speed", "was": "3x", "is": "2.2x"})
    assert list(changes.check()) == []


def test_a_machine_or_a_notebook_that_left_takes_none_of_its_changes_along(repository):
    write({"machine": "other"}, {"notebook": "gone"})
    assert list(changes.check()) == [] and len(changes.load()) == 2


# The page


def render():
    custom = [{"name": "changes", "class": "changes", "format": pages.changes_fence}]
    page = markdown.Markdown(
        extensions=["evidence.pages", "pymdownx.superfences"],
        extension_configs={
            "evidence.pages": {"page": "evidence/changes.md"},
            "pymdownx.superfences": {"custom_fences": custom},
        },
    )
    return BeautifulSoup(page.convert("```changes\n```"), "html.parser")


def cells(page):
    return [[cell.get_text(" ") for cell in row.select("td")] for row in page.select("tbody tr")]


def test_a_page_without_changes_says_so_and_leads_to_the_feed(repository):
    page = render()
    assert page.p.text == "No figure has changed since it was first recorded."
    assert [link["href"] for link in page.select("a")] == ["../../feed.xml"]


def test_a_change_says_figure_before_and_machine_and_leads_to_the_code(repository):
    write({})
    page = render()
    assert cells(page) == [
        [
            "peak-memory Peak memory of a step that the tests invent",
            "12.5\u00a0GiB",
            "was\u00a013\u00a0GiB",
            "Test machine",
        ]
    ]
    assert page.select_one("td a")["href"] == "../../notebooks/tiny/#claim-peak-memory"
    assert page.h4.a["href"] == "../../notebooks/tiny/"


def test_a_new_figure_and_one_that_is_gone_are_called_so(repository):
    write({"was": None}, {"claim": "left", "is": None})
    assert [row[1:3] for row in cells(render())] == [["12.5\u00a0GiB", "new"], ["gone", "was\u00a013\u00a0GiB"]]


def test_a_claim_or_a_notebook_that_is_gone_has_no_link(repository):
    write({"claim": "left"}, {"notebook": "gone", "machine": "other"})
    page = render()
    assert page.select("td a, h4 a") == [page.select_one("h4 a[href='../../notebooks/tiny/']")]
    assert cells(page)[1] == ["peak-memory", "12.5\u00a0GiB", "was\u00a013\u00a0GiB", "other"]


def test_the_newest_day_stands_first_each_notebook_once_on_a_day_and_all_are_in_the_contents(repository):
    write({}, {"date": "2026-01-04"}, {"date": "2026-01-03"}, {"notebook": "other"}, {"claim": "step-speed"})
    page = render()
    assert [heading["id"] for heading in page.select("h3, h4")] == [
        "on-2026-01-04",
        "on-2026-01-04-tiny",
        "on-2026-01-03",
        "on-2026-01-03-tiny",
        "on-2026-01-02",
        "on-2026-01-02-tiny",
        "on-2026-01-02-other",
    ]
    assert [link["href"][1:] for link in page.select(".contents a")] == [one["id"] for one in page.select("h3, h4")]


def test_several_changes_of_a_figure_on_a_day_are_one_and_there_and_back_is_none(repository):
    write({"is": "1x"}, {"was": "1x", "is": "2x"}, {"date": "2026-01-03", "is": "1x"}, {"date": "2026-01-03", "was": "1x", "is": "13\u00a0GiB"})  # fmt: skip
    page = render()
    assert [row[1:3] for row in cells(page)] == [["2x", "was\u00a013\u00a0GiB"]]
    assert len(page.select("h3")) == 1


def test_what_stands_in_a_line_is_no_markup(repository):
    write({"is": "<b>&12"})
    page = render()
    assert not page.select("b") and cells(page)[0][1] == "<b>&12"


def test_a_broken_list_stops_the_build(repository):
    LIST.write_text("{\n")
    with pytest.raises(SuperFencesException, match=r"results/changes\.jsonl:1: the line is not whole JSON"):
        render()


def test_its_markdown_twin_lists_the_same(repository):
    Path("docs/a.md").write_text("# A\n\n```changes\n```\n")
    assert "No figure has changed since it was first recorded." in twins.page(".", "a.md")[2]
    write({}, {"date": "2026-01-03", "was": None})
    assert twins.page(".", "a.md")[2].rstrip().endswith(
        "### 2026-01-03\n\n#### tiny\n\n- peak-memory: 12.5\u00a0GiB, new (Test machine)\n\n"
        "### 2026-01-02\n\n#### tiny\n\n- peak-memory: 12.5\u00a0GiB, was\u00a013\u00a0GiB (Test machine)"
    )  # fmt: skip


# The feed


def feed():
    return etree.fromstring(
        changes.feed(changes.load(), "Site", "https://x.org/s/", {"test-machine": "A & B"}).encode()
    )


def test_a_feed_without_changes_is_whole_and_has_no_item(repository):
    rss = feed()
    assert (rss.tag, rss.get("version")) == ("rss", "2.0")
    assert {part.tag for part in rss.find("channel")} == {"title", "link", "description"}
    assert rss.findtext("channel/link") == "https://x.org/s/evidence/changes/"


def test_an_item_is_a_notebook_on_a_day_with_whole_addresses_and_the_date_of_the_list(repository):
    write({}, {"claim": "step-speed", "was": None, "is": "<2x"}, {"date": "2026-01-04"})
    rss = feed()
    first, second = rss.findall("channel/item")
    assert first.findtext("title") == "tiny: 1 figure changed" and second.findtext("title") == "tiny: 2 figures changed"
    link = "https://x.org/s/evidence/changes/#on-2026-01-02-tiny"
    assert second.findtext("link") == second.findtext("guid") == link
    assert second.findtext("pubDate") == "Fri, 02 Jan 2026 00:00:00 +0000"
    assert email.utils.parsedate_to_datetime(rss.findtext("channel/lastBuildDate")).date().isoformat() == "2026-01-04"
    said = BeautifulSoup(second.findtext("description"), "html.parser")
    assert [line.text for line in said.select("li")] == [
        "peak-memory: 12.5\u00a0GiB, was\u00a013\u00a0GiB (A & B)",
        "step-speed: <2x, new (A & B)",
    ]


def test_an_item_leads_to_where_the_page_shows_it(repository):
    write({}, {"notebook": "other", "date": "2026-01-04"})
    links = [item.findtext("link").partition("#")[2] for item in feed().findall("channel/item")]
    assert links == [heading["id"] for heading in render().select("h4")]


def test_a_feed_stays_short_however_long_the_list(repository):
    write(*({"date": f"2026-0{month}-{day:02}"} for month in (1, 2, 3) for day in range(1, 29)))
    items = feed().findall("channel/item")
    assert len(items) == changes.NEWEST and items[0].findtext("link").endswith("#on-2026-03-28-tiny")


def test_the_list_of_this_site_is_sound(monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parent.parent)
    assert list(changes.check()) == []
    assert re.match(r"<\?xml .+\n<rss ", changes.feed(changes.load(), "Site", "https://x.org/", {}))
