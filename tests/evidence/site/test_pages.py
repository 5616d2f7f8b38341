"""Figures on pages come from records: the value, its kind, and where it comes from; an unknown one stops the build."""

import json
import re
from pathlib import Path

import markdown
import pytest
from bs4 import BeautifulSoup
from pymdownx.superfences import SuperFencesException

from evidence import records
from evidence.site import pages
from evidence.problems import Problem

FENCES = ("table", "chart", "ledger", "changes", "machines")
CHART = {
    "table": "tiny:by-batch",
    "mark": "line",
    "x": "batch",
    "y": "[plain, checkpointed]",
    "title": "Peak memory",
    "description": "Both <lines> 'rise\".",
}


def render(text, page="index.md"):
    custom = [{"name": name, "class": name, "format": getattr(pages, f"{name}_fence")} for name in FENCES]
    extensions = ["evidence.site.pages", "attr_list", "tables", "toc", "pymdownx.superfences", "pymdownx.details"]
    configs = {"evidence.site.pages": {"page": page}, "pymdownx.superfences": {"custom_fences": custom}}
    html = markdown.Markdown(extensions=extensions, extension_configs=configs).convert(text)
    return BeautifulSoup(html, "html.parser")


def shown(element):
    """What a reader sees of an element until he has chosen a machine."""
    for hidden in element.select("[hidden]"):
        hidden.extract()
    return element.text


def block(language, **keys):
    return f"```{language}\n" + "".join(f"{key}: {value}\n" for key, value in keys.items()) + "```"


def add_record(repository, machine, date="2026-01-01", **values):
    """A second record, of another machine, with other values; None stands for a claim that does not apply there."""
    data = json.loads(repository.record.read_text())
    data["machine"] |= machine
    data["date"] = date
    for name, value in values.items():
        claim = data["claims"][name.replace("_", "-")]
        claim["value"] = value
        if value is None:
            del claim["value"]
            claim["because"] = "this machine cannot"
    records.write(data)


@pytest.fixture
def gpu(repository):
    add_record(
        repository, {"name": "nvidia-x", "label": "NVIDIA X", "gpu": "NVIDIA X", "gpu_memory_gib": 80.0}, step_speed=7.5
    )
    return repository


def on_each_machine(written):
    """{machine: what who has chosen it sees of the one claim written}."""
    spans = render(written).find("button").find_all("span")
    return {machine: span.text for span in spans for machine in span["data-on"].split()}


class TestClaimInASentence:
    def test_it_shows_the_value_with_its_unit_and_is_marked_by_its_kind(self, repository):
        page = render("It takes [[tiny:peak-memory]].")
        button = page.find("button")
        assert button.text == "12.5\u00a0GiB"
        assert button["class"] == ["claim", "claim-traced"]
        assert page.find(id=button["aria-describedby"]).text == "traced: where this figure comes from"

    def test_its_unit_stands_apart_so_that_it_can_be_lighter(self, repository):
        assert render("[[tiny:peak-memory]]").select_one("button small").text == "\u00a0GiB"
        assert render("[[tiny:step-speed]]").select_one("button small").text == "x"
        head = render(block("table", table="tiny:by-batch")).find_all("th")
        assert [cell.small and cell.small.text for cell in head] == [None, ", GiB", ", GiB"]

    def test_it_opens_to_sentence_kind_bound_versions_date_code_and_record(self, repository):
        page = render("It takes [[tiny:peak-memory]].", "training/one-gpu.md")
        opened = page.find(id=page.find("button")["popovertarget"])
        text = " ".join(opened.text.split())
        assert "traced the real model code on fake tensors" in text
        assert "Peak memory of a step that the tests invent." in text
        assert f"torch 2.13.0, transformers 5.23.0, {records.load(repository.record).date}" in text
        assert "A run fails unless it is at most 13 GiB." in text
        links = {link.text: link["href"] for link in opened.find_all("a")}
        assert links == {
            "Record": "../../results/tiny/test-machine.json",
            "The code": "../../notebooks/tiny/#claim-peak-memory",
        }

    def test_a_measured_one_names_its_machine_and_its_spread(self, repository):
        opened = render("[[tiny:step-speed]]").find(id="claim-tiny-step-speed")
        assert "2.3x on Test machine; 5 repeats of 0.1 to 0.2 s" in opened.text

    def test_each_machine_has_its_own_sentence_and_bound_where_they_are_not_the_same(self, gpu):
        def paragraphs():
            opened = render("[[tiny:step-speed]]").find(id="claim-tiny-step-speed")
            return [" ".join(line.text.split()) for line in opened.find_all("p")]

        sentence, bound = "Speed of that step against another one.", "A run fails unless it is at least 1.1x."
        assert (paragraphs()[1], paragraphs()[-2]) == (sentence, bound)
        gpu.change_record(lambda data: data["claims"]["step-speed"].update(sentence="Speed in 16 bits", at_least=2.0))
        _, *machines, _ = paragraphs()
        assert len(machines) == 2
        assert [("2.3x on Test machine" in line) for line in machines] == [
            line.endswith("Speed in 16 bits. A run fails unless it is at least 2x.") for line in machines
        ]
        assert sum(line.endswith(f"{sentence} {bound}") for line in machines) == 1

    def test_a_cited_one_links_to_its_source(self, repository):
        cited = {"kind": "cited", "source": "https://example.org/?a=1&b=2"}
        repository.change_record(lambda data: data["claims"]["step-speed"].update(cited))
        opened = render("[[tiny:step-speed]]").find(id="claim-tiny-step-speed")
        assert opened.find("a", string="Source")["href"] == "https://example.org/?a=1&b=2"

    def test_it_opens_once_however_often_a_page_shows_it(self, repository):
        page = render("# Title\n\n[[tiny:peak-memory]], [[tiny:peak-memory]]\n\n| [[tiny:peak-memory]] |\n|---|")
        assert len(page.select("button")) == 3 and len(page.select("[popover]")) == 1

    def test_a_page_with_figures_names_the_runs_and_one_without_does_not(self, repository):
        foot = render("[[tiny:peak-memory]]").select_one(".evidence-foot")
        assert "The figures of this page come from these runs:" in foot.text and "Test machine" in foot.text
        assert not render("No figure.").select(".evidence-foot")

    def test_the_run_that_is_named_is_the_one_whose_figures_are_shown(self, gpu):
        foot = render("[[tiny:step-speed]]").select_one(".evidence-foot li")
        assert "NVIDIA X" in foot.text and "Test machine" not in foot.text

    def test_a_page_says_under_its_title_how_old_the_oldest_of_its_runs_is(self, repository):
        line = render("# Title\n\n[[tiny:peak-memory]]").find("h1").find_next_sibling()
        assert line.text == f"Figures last verified {records.load(repository.record).date}"
        assert line.find("a")["href"] == "#runs"
        assert not render("# Title\n\nNo figure.").select(".verified")

    def test_a_page_with_headings_keeps_its_popovers(self, repository):
        assert render("# One\n\n## Two\n\n[[tiny:peak-memory]]\n\n## Three").select("[popover]")

    def test_in_code_it_stays_as_written(self, repository):
        assert render("`[[tiny:peak-memory]]`").find("code").text == "[[tiny:peak-memory]]"

    def test_the_newest_value_of_a_gpu_comes_first(self, gpu):
        assert shown(render("[[tiny:step-speed]]").find("button")) == "7.5x"

    def test_the_reader_of_a_sentence_about_a_cpu_or_a_gpu_sees_that_of_one(self, gpu):
        assert render("[[tiny:step-speed@cpu]]").find("button").text == "2.3x"
        assert render("[[tiny:step-speed@gpu]]").find("button").text == "7.5x"

    def test_a_sentence_about_a_cpu_follows_the_choice_of_a_cpu_and_shows_none_of_a_gpu(self, gpu):
        add_record(gpu, {"name": "older"}, date="2020-01-01", step_speed=1.5)
        kept = records.load(gpu.record).machine
        assert on_each_machine("[[tiny:step-speed@cpu]]") == {"older": "1.5x", kept: "2.3x", "nvidia-x": "2.3x"}

    def test_a_sentence_about_what_few_machines_have_shows_who_lacks_it_the_first_with_a_value_and_its_name(
        self, repository
    ):
        add_record(repository, {"name": "other", "label": "Other"}, step_speed=None)
        assert on_each_machine("[[tiny:step-speed@any]]") == {"test-machine": "2.3x", "other": "2.3x (Test machine)"}

    @pytest.mark.parametrize("where", ["cpu", "any"])
    def test_who_has_chosen_a_cpu_without_the_figure_sees_that_of_the_first_cpu_and_its_name(self, gpu, where):
        add_record(gpu, {"name": "without", "label": "Without"}, date="2020-01-01", step_speed=None)
        kept, first = records.load(gpu.record).machine, "2.3x (Test machine)" if where == "cpu" else "7.5x (NVIDIA X)"
        of_gpu = "2.3x" if where == "cpu" else "7.5x"
        assert on_each_machine(f"[[tiny:step-speed@{where}]]") == {kept: "2.3x", "without": first, "nvidia-x": of_gpu}

    def test_where_no_cpu_has_the_figure_it_does_not_apply_to_the_one_chosen(self, repository):
        add_record(repository, {"name": "other", "label": "Other"}, step_speed=None)
        add_record(repository, {"name": "test-machine", "label": "Test machine"}, step_speed=None)
        assert set(on_each_machine("[[tiny:step-speed@cpu]]").values()) == {"does not apply"}

    def test_and_who_has_it_sees_that_of_the_machine_chosen(self, repository):
        add_record(repository, {"name": "without", "label": "Without"}, step_speed=None)
        add_record(repository, {"name": "older"}, date="2020-01-01", step_speed=1.5)
        kept = records.load(repository.record).machine
        assert on_each_machine("[[tiny:step-speed@any]]") == {
            "older": "1.5x",
            kept: "2.3x",
            "without": "2.3x (Test machine)",
        }

    def test_of_two_machines_of_a_kind_the_newest_record_counts(self, repository):
        add_record(repository, {"name": "older"}, date="2020-01-01", step_speed=1.5)
        assert shown(render("[[tiny:step-speed]]").find("button")) == "2.3x"

    def test_without_a_record_of_a_gpu_it_says_so_and_shows_no_other_value(self, repository):
        button = render("[[tiny:step-speed@gpu]]").find("button")
        assert button.text == "not measured yet" and "claim-open" in button["class"]

    def test_a_machine_where_it_does_not_apply_says_why(self, repository):
        add_record(repository, {"name": "other", "label": "Other"}, step_speed=None)
        page = render("[[tiny:step-speed]]")
        assert shown(page.find("button")) == "2.3x"
        opened = page.find(id="claim-tiny-step-speed").text
        assert "does not apply, because this machine cannot on Othertorch" in opened, (
            "and no spread of what is no figure"
        )

    def test_what_a_record_says_is_text_and_no_markup(self, repository):
        repository.edit(repository.record, "Peak memory of a step", "<script>alert()</script> of a step")
        assert not render("[[tiny:peak-memory]]").find("script")


class TestWrongClaim:
    def test_an_unknown_one_stops_the_build_with_page_line_and_nearest_name(self, repository):
        line = repository.add_to_page("It takes [[tiny:peak-memry]].")
        with pytest.raises(Problem) as caught:
            render(repository.page.read_text())
        assert str(caught.value) == (
            f"docs/index.md:{line}: unknown figure [[tiny:peak-memry]]: no claim 'peak-memry' in the records of tiny "
            "(did you mean peak-memory?). Fix: take a name of the ledger, or add the claim to the notebook and record it"
        )

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("## It takes [[tiny:peak-memory]]", "heading"),
            ("It takes **[[tiny:peak-memory]]**\n=====", "heading"),
            ("[It takes [[tiny:peak-memory]]](https://example.org)", "link"),
            ("[It takes **[[tiny:peak-memory@cpu]]**](https://example.org)", "link"),
        ],
    )
    def test_one_in_a_heading_or_a_link_stops_the_build_with_page_and_line(self, repository, text, place):
        repository.page.write_text(f"Text.\n\n{text}\n")
        with pytest.raises(Problem) as caught:
            render(repository.page.read_text())
        assert str(caught.value) == (
            f"docs/index.md:3: the claim tiny:peak-memory stands in a {place}. Fix: put it into the sentence after it"
        )

    def test_a_broken_record_stops_the_build(self, repository):
        repository.record.write_text("{")
        with pytest.raises(Problem, match=r"results/tiny/test-machine\.json:1: the record is not whole JSON"):
            render("[[tiny:peak-memory]]")


class TestTable:
    def test_it_shows_every_column_or_those_asked_for_in_that_order(self, repository):
        page = render(block("table", table="tiny:by-batch"))
        assert [cell.text for cell in page.find_all("th")] == ["Batch size", "Plain, GiB", "Checkpointed, GiB"]
        page = render(block("table", table="tiny:by-batch", columns="[plain, batch]"))
        assert [cell.text for cell in page.find_all("th")] == ["Plain, GiB", "Batch size"]
        assert [cell.text for cell in page.find_all("td")] == ["3", "1", "5", "2"]

    def test_a_missing_cell_says_so_and_numbers_stand_right(self, repository):
        cell = render(block("table", table="tiny:by-batch")).find_all("td")[-1]
        assert (cell.text, cell["class"]) == ("not measured yet", ["number"])

    def test_its_caption_names_kind_title_versions_date_code_and_record(self, repository):
        caption = render(block("table", table="tiny:by-batch"), "a/b.md").select_one(".evidence-caption")
        assert caption.text.startswith("traced: Peak memory by batch size. torch 2.13.0, transformers 5.23.0, ")
        links = [link["href"] for link in caption.find_all("a")]
        assert links == ["../../notebooks/tiny/#table-by-batch", "../../results/tiny/test-machine.json"]

    def test_a_written_one_scrolls_by_itself_and_its_empty_corner_is_no_heading(self, repository):
        page = render("| | Speed |\n|---|---|\n| Plain | slow |")
        assert page.select_one(".scroll > table")
        assert [cell.name for cell in page.select("thead tr > *")] == ["td", "th"]


class TestChart:
    def test_it_is_drawn_twice_with_its_description_and_its_figures_beside_it(self, repository):
        figure = render(block("chart", **CHART)).find("figure")
        drawings = figure.find_all("svg")
        assert [drawing["aria-label"] for drawing in drawings] == ["Both <lines> 'rise\"."] * 2
        assert figure.find("figcaption").text == "Peak memory"
        assert [cell.text for cell in figure.find("details").find_all("td")] == [
            "1",
            "3",
            "2",
            "2",
            "5",
            "not measured yet",
        ]

    def test_its_colours_follow_the_theme_and_its_fonts_the_page(self, repository):
        html = str(render(block("chart", **CHART)).find("figure"))
        assert (
            "color-0" in html
            and "#" not in html.replace("#table-", "")
            and "font-family" not in html
            and "http" not in html
        )
        style = (Path(__file__).resolve().parent.parent / "docs" / "assets" / "site.css").read_text()
        assert ".chart .color-0" in style and "color: var(--chart-1)" in style

    @pytest.mark.parametrize("mark", pages.MARKS)
    def test_every_mark_can_be_drawn(self, repository, mark):
        assert len(render(block("chart", **CHART | {"mark": mark})).find_all("svg")) == 2


class TestWrongBlock:
    @pytest.mark.parametrize(
        ("change", "what"),
        [
            (
                {"x": "bach"},
                "table tiny:by-batch has no column 'bach' (did you mean batch?): batch, plain, checkpointed",
            ),
            ({"y": "plane"}, "table tiny:by-batch has no column 'plane' (did you mean plain?)"),
            ({"mark": "lines"}, "there is no mark lines (did you mean line?): line, bar, area"),
            ({"table": "tiny:by-bach"}, "no table 'by-bach' in the records of tiny (did you mean by-batch?)"),
            ({"y": "[batch, plain]"}, "one axis, but the units Batch size, GiB"),
            ({"description": None}, "this block lacks 'description'"),
            ({"title": None}, "this block lacks 'title'"),
        ],
    )
    def test_it_stops_the_build_with_page_and_line(self, repository, change, what):
        keys = {key: value for key, value in (CHART | change).items() if value is not None}
        repository.page.write_text(f"Text.\n\n{block('chart', **keys)}\n")
        with pytest.raises(SuperFencesException) as caught:
            render(repository.page.read_text())
        message = str(caught.value)
        assert message.startswith("docs/index.md:4: chart: ") and what in message and "Fix: " in message

    @pytest.mark.parametrize("content", ["", "tiny:by-batch", "[", "table: 5"])
    def test_a_table_block_that_names_none_is_not_shown_as_code(self, repository, content):
        with pytest.raises(SuperFencesException, match=r"^docs/index\.md(:\d+)?: table: .*Fix: "):
            render(f"```table\n{content}\n```")

    def test_also_inside_a_folded_block(self, repository):
        text = block("table", table="tiny:by-bach").replace("\n", "\n    ")
        with pytest.raises(SuperFencesException, match="no table 'by-bach'"):
            render(f'??? example "More"\n    {text}')


class TestLedgerAndMachines:
    def test_the_ledger_holds_every_claim_with_every_machine(self, gpu):
        page = render("```ledger\n```", "evidence/ledger.md")
        rows = [row["id"] for row in page.select("tbody tr")]
        assert rows == ["tiny-peak-memory", "tiny-step-speed"]
        assert "2.3x" in page.find(id="tiny-step-speed").text and "7.5x" in page.find(id="tiny-step-speed").text
        assert page.find(id="tiny-peak-memory").text.count("12.5") == 1  # the same on every machine

    def test_the_machines_are_listed_once_each(self, gpu):
        cells = [row.find("td").text for row in render("```machines\n```").select("tbody tr")]
        assert cells == ["nvidia-x", "test-machine"]


@pytest.mark.parametrize(
    ("page", "root"),
    [
        ("index.md", ""),
        ("training/one-gpu.md", "../../"),
        ("evidence/index.md", "../"),
        ("contribute.md", "../"),
        ("", ""),
    ],
)
def test_links_lead_from_the_page_to_the_records(repository, page, root):
    links = [link["href"] for link in render("[[tiny:peak-memory]]", page).find_all("a")]
    assert f"{root}results/tiny/test-machine.json" in links and all(
        re.match(rf"{root}(results|notebooks)/", link) for link in links
    )
