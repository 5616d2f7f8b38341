"""Figures on pages come from records: the value, its kind, and where it comes from; an unknown one stops the build."""

import re
import subprocess

import pytest
from pymdownx.superfences import SuperFencesException
from small_site import CHART, add_gpu, add_prediction, add_table, block, on, render, shown, speed

from evidence import records
from evidence.problems import Problem
from evidence.records import Record
from evidence.site import commits, context, fences

SPEED = "[[tiny:step-speed]]"


@pytest.fixture
def gpu(repository):
    add_gpu(repository)
    return repository


def on_each_machine(written):
    """{machine: what a reader of it sees of the one claim written}."""
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
        assert render(SPEED).select_one("button small").text == "x"
        head = render(block("table", table="tiny:by-batch")).find_all("th")
        assert [cell.small and cell.small.text for cell in head] == [None, ", GiB", ", GiB"]

    def test_it_opens_to_sentence_kind_versions_date_code_and_record(self, repository):
        page = render("It takes [[tiny:peak-memory]].", "training/one-gpu.md")
        opened = page.find(id=page.find("button")["popovertarget"])
        text = " ".join(opened.text.split())
        assert "traced the real model code on fake tensors" in text
        assert "Peak memory of a step that the tests invent." in text
        assert f"torch 2.13.0, transformers 5.23.0, {records.load(repository.exact).date}" in text
        assert "13 GiB" not in text, "the bound is the run's"
        links = {link.text: link["href"] for link in opened.find_all("a")}
        assert links == {
            "Record": "../../results/tiny/exact.json",
            "The code": "../../notebooks/tiny/#claim-peak-memory",
        }

    def test_a_measured_one_names_its_machine_and_its_spread(self, repository):
        page = render(SPEED)
        assert page.find("button")["title"] == "Test CPU 2 cores"
        opened = " ".join(page.find(id="claim-tiny-step-speed").text.split())
        assert "2.3x on Test CPU 2 cores; 5 repeats of one side of the ratio: 0.1 s to 0.2 s" in opened

    def test_each_machine_has_its_own_sentence_where_they_are_not_the_same(self, gpu):
        def paragraphs():
            opened = render(SPEED).find(id="claim-tiny-step-speed")
            return [" ".join(line.text.split()) for line in opened.find_all("p")]

        sentence = "Speed of that step against another one."
        assert paragraphs()[1] == sentence
        gpu.change_record(lambda data: data["claims"]["step-speed"].update(sentence="Speed in 16 bits"))
        _, *machines, _ = paragraphs()
        assert len(machines) == 2
        assert [("2.3x on Test CPU" in line) for line in machines] == [
            line.endswith("Speed in 16 bits.") for line in machines
        ]
        assert sum(line.endswith(sentence) for line in machines) == 1

    def test_a_cited_one_links_to_its_source(self, repository):
        cited = {"kind": "cited", "source": "https://example.org/?a=1&b=2"}
        repository.change_record(lambda data: data["claims"]["peak-memory"].update(cited), repository.exact)
        opened = render("[[tiny:peak-memory]]").find(id="claim-tiny-peak-memory")
        assert opened.find("a", string="Source")["href"] == "https://example.org/?a=1&b=2"
        assert "torch" not in opened.text, "our versions have no part in what others measured"

    def test_a_predicted_one_shows_its_band_for_each_gpu(self, repository):
        repository.change_record(add_prediction, repository.exact)
        page = render("It runs at [[tiny:bf16-speed]] the speed.")
        spans = page.find("button").find_all("span")
        seen = {gpu: span.text for span in spans for gpu in span["data-for"].split()}
        assert seen == {"rtx-4090": "1.9x (1.6–2.3)", "t4": "1.1x (0.90–1.3)", "v100": "does not apply"}
        assert shown(page.find("button")) == "1.9x (1.6–2.3)", "the first until the reader has chosen"

    def test_a_page_opens_on_a_gpu_that_its_figures_are_predicted_for(self, repository):
        def none_on_the_first(data):
            add_prediction(data)
            data["claims"]["bf16-speed"]["on"]["rtx-4090"] = {"label": "RTX 4090", "because": "it does not fit"}

        repository.change_record(none_on_the_first, repository.exact)
        page = render("# Title\n\n[[tiny:bf16-speed]]")
        assert shown(page.find("button")) == "1.1x (0.90–1.3)"
        assert page.select_one(".verified")["data-gpus"].split()[-1] == "v100", "GPUs without a figure come last"
        assert "predicted for T4" in shown(page.select_one(".verified")), "also on paper and without scripts"

    def test_a_gpu_that_one_of_the_figures_lacks_is_shown_another_with_its_name(self, repository):
        def lacks_t4(data):
            add_prediction(data)
            data["claims"]["other-speed"] = data["claims"]["bf16-speed"] | {
                "on": {"rtx-4090": data["claims"]["bf16-speed"]["on"]["rtx-4090"]}
            }

        repository.change_record(lacks_t4, repository.exact)
        button = render("[[tiny:bf16-speed]] [[tiny:other-speed]]").select("button.claim")[1]
        assert [shown(part) for part in button.select("[data-for~=t4]")] == ["1.9x (1.6–2.3) (RTX 4090)"]

    def test_a_measured_one_and_a_traced_ratio_have_two_digits_and_the_popover_has_the_third(self, repository):
        repository.change_record(lambda data: data["claims"]["step-speed"].update(value=2.347))
        repository.change_record(lambda data: data["claims"]["peak-memory"].update(value=12.53), repository.exact)
        page = render(f"{SPEED} [[tiny:peak-memory]]")
        assert [button.text for button in page.select("button.claim")] == ["2.3x", "12.5\u00a0GiB"], "amounts are added up"
        assert "2.35x" in page.find(id="claim-tiny-step-speed").text

    def test_it_opens_once_however_often_a_page_shows_it(self, repository):
        page = render("# Title\n\n[[tiny:peak-memory]], [[tiny:peak-memory]]\n\n| [[tiny:peak-memory]] |\n|---|")
        assert len(page.select("button.claim")) == 3 and len(page.select("[popover]")) == 1

    def test_a_page_with_figures_names_the_runs_and_one_without_does_not(self, repository):
        runs = render(f"[[tiny:peak-memory]] {SPEED}").select(".evidence-foot li")
        assert ["Test CPU 2 cores" in run.text for run in runs] == [False, True], "the exact figures, and the machine's"
        assert not render("No figure.").select(".evidence-foot")

    def test_the_run_that_is_named_is_the_one_whose_figures_are_shown(self, gpu):
        foot = render(SPEED).select_one(".evidence-foot")
        assert "NVIDIA X" in foot.text and "Test CPU" not in foot.text

    def test_a_page_says_under_its_title_how_old_the_oldest_of_its_runs_is(self, gpu):
        line = render(f"# Title\n\n[[tiny:peak-memory]] {SPEED}").find("h1").find_next_sibling()
        assert shown(line) == "Figures last verified 2026-01-01, measured on NVIDIA X · Dotted figures open their source"
        assert line.find("a")["href"] == "#runs"
        assert not render("# Title\n\nNo figure.").select(".verified")

    def test_a_page_with_headings_keeps_its_popovers(self, repository):
        assert render("# One\n\n## Two\n\n[[tiny:peak-memory]]\n\n## Three").select("[popover]")

    def test_in_code_it_stays_as_written(self, repository):
        assert render("`[[tiny:peak-memory]]`").find("code").text == "[[tiny:peak-memory]]"

    def test_a_machine_where_it_does_not_apply_says_why(self, repository):
        repository.record_of_another_machine(change=speed(None))
        page = render(SPEED)
        assert shown(page.find("button")) == "2.3x"
        other = page.find(id="claim-tiny-step-speed").select_one("[data-on~=other-cpu-2core]")
        assert "does not apply, because this machine cannot on Other CPU 2 corestorch" in " ".join(other.text.split())

    def test_one_whose_code_has_changed_since_its_run_is_shown_with_the_day_of_that_run(self, repository):
        repository.change_record(lambda data: data.update(date="2026-01-02"))
        repository.edit(repository.source, '2.3, "x"', '2.30, "x"')
        page = render(f"[[tiny:peak-memory]] {SPEED}")
        assert [button.text for button in page.select("button.claim")] == ["12.5\u00a0GiB", "2.3x (run of 2026-01-02)"]
        assert "The code of this figure has changed since its run." in page.find(id="claim-tiny-step-speed").text
        assert "has changed" not in page.find(id="claim-tiny-peak-memory").text


class TestWhichMachine:
    def test_the_newest_value_of_a_gpu_comes_first(self, gpu):
        assert shown(render(SPEED).find("button")) == "7.5x"

    def test_of_two_machines_of_a_kind_the_newest_record_counts(self, repository):
        repository.record_of_another_machine(date="2026-01-01", change=speed(1.5))
        assert shown(render(SPEED).find("button")) == "2.3x"

    def test_the_choice_of_a_machine_shows_its_value(self, gpu):
        assert on_each_machine(SPEED) == {"nvidia-x": "7.5x", "test-cpu-2core": "2.3x"}

    def test_a_figure_that_is_the_same_on_every_machine_stands_once(self, gpu):
        button = render("[[tiny:peak-memory]]").find("button")
        assert not button.select("[data-on]") and button.text == "12.5\u00a0GiB"

    @pytest.mark.parametrize(("where", "value"), [("cpu", "2.3x"), ("gpu", "7.5x")])
    def test_a_sentence_about_a_cpu_or_a_gpu_shows_one_of_that_kind_whatever_is_chosen(self, gpu, where, value):
        button = render(f"[[tiny:step-speed@{where}]]").find("button")
        assert not button.select("[data-on]") and button.text == value

    def test_a_sentence_about_a_cpu_follows_the_choice_of_a_cpu_and_shows_none_of_a_gpu(self, gpu):
        gpu.record_of_another_machine(cpu="Older", date="2026-01-01", change=speed(1.5))
        shown_on = on_each_machine("[[tiny:step-speed@cpu]]")
        assert shown_on == {"older-2core": "1.5x", "test-cpu-2core": "2.3x", "nvidia-x": "2.3x"}

    def test_a_sentence_about_any_machine_borrows_the_first_value_and_names_whose_it_is(self, repository):
        repository.record_of_another_machine(change=speed(None))
        repository.record_of_another_machine(cpu="Older", date="2026-01-01", change=speed(1.5))
        assert on_each_machine("[[tiny:step-speed@any]]") == {
            "older-2core": "1.5x",
            "test-cpu-2core": "2.3x",
            "other-cpu-2core": "2.3x (Test CPU 2 cores)",
        }

    @pytest.mark.parametrize(("where", "borrowed"), [("cpu", "2.3x (Test CPU 2 cores)"), ("any", "7.5x (NVIDIA X)")])
    def test_a_cpu_without_the_figure_borrows_that_of_the_first_machine_asked_for(self, gpu, where, borrowed):
        gpu.record_of_another_machine(cpu="Older", date="2026-01-01", change=speed(None))
        shown_on = on_each_machine(f"[[tiny:step-speed@{where}]]")
        of_gpu = "2.3x" if where == "cpu" else "7.5x"
        assert shown_on == {"test-cpu-2core": "2.3x", "older-2core": borrowed, "nvidia-x": of_gpu}

    def test_where_no_cpu_has_the_figure_it_does_not_apply_to_the_one_chosen(self, repository):
        repository.record_of_another_machine(change=speed(None))
        repository.change_record(speed(None))
        assert render("[[tiny:step-speed@cpu]]").find("button").text == "does not apply"

    def test_without_a_record_of_a_gpu_it_says_so_and_shows_no_other_value(self, repository):
        button = render("[[tiny:step-speed@gpu]]").find("button")
        assert button.text == "does not apply" and "claim-open" in button["class"]

    def test_a_machine_without_the_claim_shows_that_of_another_with_its_name(self, gpu):
        gpu.change_record(add_table)
        gpu.change_record(lambda data: data["claims"].pop("step-speed"))
        page = render(f"{SPEED}\n\n{block('table', table='tiny:by-size')}")
        assert on(page.find("button"), "test-cpu-2core") == ["7.5x (NVIDIA X)"]
        assert "on Test CPU 2 cores" in shown(page.select_one(".evidence-caption")), "a table's caption names its machine"

    def test_a_measured_table_and_chart_stand_there_for_every_machine(self, repository):
        repository.change_record(add_table)
        add_gpu(repository, add_table)
        for text in (block("table", table="tiny:by-size"), block("chart", **CHART | {"table": "tiny:by-size"})):
            page = render(text)
            assert "30.5" in on(page, "nvidia-x")[0] and "30.5" not in on(page, "test-cpu-2core")[0]
            assert "NVIDIA X" in on(page, "nvidia-x")[0] and "Test CPU" in on(page, "test-cpu-2core")[0]
            hidden = page.select_one("[data-on][hidden]")
            assert hidden.has_attr("data-search-exclude"), "a search finds the first value only"
            assert not hidden.find(hidden.name), "Material ends an exclusion at the first end of such an element"
            assert "30.5" in shown(page)

    def test_a_page_shows_one_machine_throughout_a_gpu_where_it_has_half_of_the_figures(self, gpu):
        """Here it has one of two; the other figure is a CPU's, and says so."""
        gpu.change_record(add_table)
        page = render(f"# Title\n\n{SPEED}\n\n{block('table', table='tiny:by-size')}")
        assert shown(page.select_one(".verified")).endswith("measured on NVIDIA X · Dotted figures open their source")
        assert shown(page.find("button")) == "7.5x" and "Test CPU" in shown(page.select_one(".evidence-caption"))
        assert page.select_one(".verified")["data-machines"] == "nvidia-x test-cpu-2core"

    def test_of_two_cpus_the_one_with_most_of_the_figures_is_shown(self, repository):
        repository.change_record(add_table)
        repository.record_of_another_machine(change=lambda data: data["tables"].pop("by-size"))
        page = render(f"# Title\n\n{SPEED}\n\n{block('table', table='tiny:by-size')}")
        assert page.select_one(".verified")["data-machines"] == "test-cpu-2core other-cpu-2core"

    def test_a_figure_of_another_machine_than_the_page_shows_names_it(self, gpu):
        """Also in a sentence that asks for none, before the reader has chosen."""
        gpu.change_record(add_table)
        gpu.change_record(lambda data: data["tables"].update(more=data["tables"]["by-size"], third=data["tables"]["by-size"]))
        gpu.change_record(lambda data: data["claims"].pop("step-speed"))
        blocks = "\n\n".join(block("table", table=f"tiny:{name}") for name in ("by-size", "more", "third"))
        assert shown(render(f"{SPEED}\n\n{blocks}").find("button")) == "7.5x (NVIDIA X)", "the GPU has no table"

    def test_a_machine_with_little_of_a_page_is_not_offered_and_shows_what_the_first_does(self, gpu):
        gpu.change_record(add_table)
        gpu.change_record(lambda data: data["tables"].update(more=data["tables"]["by-size"]))
        blocks = "\n\n".join(block("table", table=f"tiny:{name}") for name in ("by-size", "more"))
        page = render(f"# Title\n\n{SPEED}\n\n{blocks}")
        assert page.select_one(".verified")["data-machines"] == "test-cpu-2core"
        assert not page.select("[data-on]") and page.find("button").text == "2.3x"

    def test_what_a_figure_opens_is_of_the_machine_shown_and_of_no_other(self, gpu):
        opened = render(SPEED).find(id="claim-tiny-step-speed")
        assert "7.5x" in shown(opened) and "Test CPU" not in shown(opened)

    def test_machines_stand_in_the_order_in_which_they_are_shown(self, gpu):
        gpu.record_of_another_machine(cpu="Older", date="2026-01-01")
        assert list(context.machines(context.stored("results")[0])) == ["nvidia-x", "test-cpu-2core", "older-2core"]


class TestTheCodeBehindAFigure:
    @pytest.fixture
    def committed(self, repository):
        def git(*arguments):
            own = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
            return subprocess.run(["git", *own, *arguments], check=True, capture_output=True, text=True).stdout.strip()

        git("init", "-q")
        git("add", ".")
        git("commit", "-q", "-m", "A record")
        repository.commit = git("rev-parse", "HEAD")
        repository.git = git
        return repository

    def links(self, name):
        page = render(f"[[tiny:{name}]]", repository="https://example.org/r")
        return {link.text: link["href"] for link in page.find(id=f"claim-tiny-{name}").find_all("a")}

    def line(self, repository, name):
        lines = repository.source.read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if f'claim("{name}"' in line)

    def test_it_is_the_line_of_the_notebook_at_the_commit_that_brought_the_record(self, committed):
        line = self.line(committed, "peak-memory")
        committed.edit(committed.source, "# A notebook of the tests.", "# A notebook\n# of the tests.")
        committed.git("commit", "-q", "-a", "-m", "Prose, which moves the line")
        assert self.links("peak-memory") == {
            "Record": "results/tiny/exact.json",
            "The code": f"https://example.org/r/blob/{committed.commit}/notebooks/tiny.py#L{line}",
            "The run": "notebooks/tiny/#claim-peak-memory",
        }

    def test_each_machine_has_that_of_its_own_record(self, committed):
        add_gpu(committed)
        committed.git("add", ".")
        committed.git("commit", "-q", "-m", "A record of a GPU")
        page = render(SPEED, repository="https://example.org/r")
        found = re.findall(r"blob/(\w+)/notebooks/tiny.py#L\d+", str(page.find(id="claim-tiny-step-speed")))
        assert sorted(found) == sorted([committed.commit, committed.git("rev-parse", "HEAD")])

    @pytest.mark.parametrize("edited", ["changed", "new"])
    def test_a_record_that_is_not_committed_leads_to_the_cell_only(self, committed, edited):
        if edited == "changed":
            committed.change_record(speed(2.4))
        else:
            committed.git("rm", "-q", "--cached", "results/tiny/test-cpu-2core.json")
            committed.git("commit", "-q", "--amend", "-m", "Without the record")
        assert self.links("step-speed") == {
            "Record": "results/tiny/test-cpu-2core.json",
            "The code": "notebooks/tiny/#claim-step-speed",
        }

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ('claim("a-b", "x")\nclaim("a-bc", "y")', 2),
            ('for name in ("a-bc", "d"):\n    claim(\n        name, "x")', 1),
            ('claim(f"{name}-c", "w")\nclaim(f"{name}-bc", "x")\nclaim(f"{name}-{end}", "y")', 2),
            ('claim(name + "c", "x")', None),
        ],
        ids=["a text", "a list of names", "the f-string that says most of it", "nowhere"],
    )
    def test_the_line_is_the_one_that_names_the_claim(self, text, line):
        assert commits.Code("0" * 40, text).line_of("a-bc") == line

    def test_a_claim_that_no_line_names_leads_to_the_file(self, committed):
        def renamed(data):
            data["claims"]["other-name"] = data["claims"].pop("peak-memory")

        committed.change_record(renamed, committed.exact)
        committed.git("commit", "-q", "-a", "-m", "Another name")
        assert self.links("other-name")["The code"].endswith("/notebooks/tiny.py")


class TestWhatARecordSaysIsText:
    HOSTILE = """<img src=x onerror=alert(1)> "onclick='x' [a](javascript:x) {: onclick=x } & *b*"""

    @pytest.fixture
    def hostile(self, repository, monkeypatch):
        """Records with markup in every field, as if the schema let them pass."""

        def claims(kind):
            entry = {"sentence": self.HOSTILE, "kind": kind, "unit": self.HOSTILE, "at_most": 9, "source": self.HOSTILE}
            none = {key: said for key, said in entry.items() if key != "at_most"} | {"because": self.HOSTILE}
            return {"value": entry | {"value": 1.5}, "none": none}

        columns = {"batch": f"{self.HOSTILE}, {self.HOSTILE}", "plain": self.HOSTILE, "name": self.HOSTILE}
        rows = [[1, 2.0, self.HOSTILE], [2, 3.0, None]]

        def record(machine):
            kind, path = ("measured", "m") if machine else ("traced", "exact")
            table = {"title": self.HOSTILE, "kind": kind, "columns": columns, "rows": rows, "source": self.HOSTILE}
            data = {
                "notebook": "tiny",
                "date": "2026-01-01",
                "software": {"torch": self.HOSTILE, "transformers": self.HOSTILE},
                "claims": {f"{path}-{key}": entry for key, entry in claims(kind).items()},
                "tables": {path: table},
            }
            data |= {"machine": {"name": machine, "label": self.HOSTILE, "cores": self.HOSTILE}} if machine else {}
            return Record(repository.record.with_stem(machine or "exact"), data)

        found = {"tiny": [record(name) for name in ("", "one", "two")]}
        found["tiny"][2].data["claims"]["m-value"]["value"] = 2.5
        monkeypatch.setattr(context, "stored", lambda results: (found, found))

    def test_and_never_markup(self, hostile):
        names = ["exact-value", "exact-none", "m-value", "m-none@any"]
        chart = CHART | {"table": "tiny:exact", "y": "plain"}
        page = render(
            "\n\n".join(
                [
                    *(f"A figure [[tiny:{name}]] in a sentence." for name in names),
                    *(block("table", table=f"tiny:{name}") for name in ("exact", "m")),
                    *(block("chart", **chart | {"mark": mark}) for mark in fences.MARKS),
                    "```ledger\n```",
                    "```machines\n```",
                ]
            )
        )
        charts = 2 * len(fences.MARKS)  # for a desktop and for a phone
        assert (
            len(page.select("table")) >= 6 and len(page.select("svg")) == charts and len(page.select("[popover]")) == 4
        )
        assert not page.select("img, script")
        assert not [e for e in page.find_all(True) if any(name.startswith("on") for name in e.attrs)]
        assert not page.select("button em, button a, td em")
        assert page.text.count("<img src=x onerror=alert(1)>") > 40


class TestWrongClaim:
    def test_an_unknown_one_stops_the_build_with_page_line_and_nearest_name(self, repository):
        line = repository.add_to_page("It takes [[tiny:peak-memry]].")
        with pytest.raises(Problem) as caught:
            render(repository.page.read_text())
        message = str(caught.value)
        assert message.startswith(f"docs/index.md:{line}: unknown figure [[tiny:peak-memry]]: ")
        assert "(did you mean peak-memory?)" in message and "Fix: take a name of the ledger" in message

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


class TestTable:
    def test_it_shows_every_column_or_those_asked_for_in_that_order(self, repository):
        page = render(block("table", table="tiny:by-batch"))
        assert [cell.text for cell in page.find_all("th")] == ["Batch size", "Plain, GiB", "Checkpointed, GiB"]
        page = render(block("table", table="tiny:by-batch", columns="[plain, batch]"))
        assert [cell.text for cell in page.find_all("th")] == ["Plain, GiB", "Batch size"]
        assert [cell.text for cell in page.find_all("td")] == ["3", "1", "5", "2"]

    def test_a_missing_cell_has_a_dash_and_numbers_stand_right(self, repository):
        cell = render(block("table", table="tiny:by-batch")).find_all("td")[-1]
        assert (cell.text, cell["class"]) == ("–", ["number"])

    def test_its_caption_names_kind_title_versions_date_code_and_record(self, repository):
        caption = render(block("table", table="tiny:by-batch"), "a/b.md").select_one(".evidence-caption")
        assert caption.text.startswith("traced: Peak memory by batch size. torch 2.13.0, transformers 5.23.0, ")
        links = [link["href"] for link in caption.find_all("a")]
        assert links == ["../../notebooks/tiny/#table-by-batch", "../../results/tiny/exact.json"]

    def test_to_a_screen_reader_it_has_its_title_or_the_name_of_its_section(self, repository):
        written = "| | Speed |\n|---|---|\n| Plain | slow |\n\nText.\n\n"
        page = render(f"## Speed of `x`\n\n{written}{written}{block('table', table='tiny:by-batch')}")
        names = [table["aria-label"] for table in page.find_all("table")]
        assert names == ["Speed of x", "Speed of x, table 2", "Peak memory by batch size"]

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
        cells = [cell.text for cell in figure.find("details").find_all("td")]
        assert cells == ["1", "3", "2", "2", "5", "–"]


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
        rows = {row.a["href"].rpartition("#claim-")[2]: row.text for row in page.select("tbody tr")}
        assert sorted(rows) == ["peak-memory", "step-speed"]
        assert "2.3x" in rows["step-speed"] and "7.5x" in rows["step-speed"]
        assert rows["peak-memory"].count("12.5") == 1  # the same on every machine

    def test_the_machines_are_listed_once_each(self, gpu):
        cells = [row.find("td").text for row in render("```machines\n```").select("tbody tr")]
        assert cells == ["nvidia-x", "test-cpu-2core"]


class TestCodeInSentences:
    def test_an_amount_in_backticks_is_text_that_keeps_together(self):
        page = render("A GPU of `24 GB`, `$0.30`, `500 W` and `12,800 GB/s`.")
        assert [amount.text for amount in page.select("span.quantity")] == ["24 GB", "$0.30", "500 W", "12,800 GB/s"]
        assert not page.select("code")

    @pytest.mark.parametrize("code", ["24 + 12", "8e9 x 4.9 / 8 = 4.9 GB", "max_length=512", "0.05", "4-bit", "-ngl 99"])
    def test_a_setting_or_a_sum_stays_code(self, code):
        assert render(f"Take `{code}`.").code.text == code

    def test_a_long_name_in_a_table_may_break_behind_its_marks_and_is_copied_whole(self):
        name = "torch.nn.attention.flex_attention(--tp-size=4)"
        page = render(f"`{name}`\n\n| A | B |\n|---|---|\n| `{name}` | `short` |\n")
        inline, long, short = page.select("code")
        assert not inline.select("wbr") and not short.select("wbr")
        assert len(long.select("wbr")) > 4 and long.text == name
