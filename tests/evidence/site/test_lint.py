"""What must not be in a page is named with line and fix; what is allowed passes."""

import json
from pathlib import Path

import pytest

from evidence import notebooks, records
from evidence.site import lint

LINK_OR_CLAIM = "name a claim, [[notebook:claim]], or make the figure the text of a link to its source"


def problems_of(repository, text):
    """The problems of a text on the page, with lines counted from its beginning, and nothing else on the page wrong."""
    begin = repository.add_to_page(text)
    prefix = f"{repository.page}:"
    found = []
    for problem in repository.page_problems():
        assert problem.startswith(prefix), problem
        line, _, message = problem.removeprefix(prefix).partition(": ")
        found.append(f"{int(line) - begin + 1}: {message}")
    return found


def test_a_sound_page_has_no_problem(repository):
    assert repository.page_problems() == []


class TestFigures:
    @pytest.mark.parametrize(
        ("text", "figure"),
        [
            ("It is 2.3x faster.", "2.3x"),
            ("It is 2.3× faster.", "2.3×"),
            ("It is 2.3 x faster.", "2.3 x"),
            ("It is 3 times slower.", "3 times"),
            ("It is 20 % slower.", "20 %"),
            ("It is 20% slower.", "20%"),
            ("It is 20 percent slower.", "20 percent"),
            ("It is 20-30 % slower.", "20-30 %"),
            ("It is 20 – 30 % slower.", "20 – 30 %"),
            ("It takes 12 GiB.", "12 GiB"),
            ("It takes 12GB (or so).", "12GB"),
            ("It takes 12\u00a0GiB.", "12 GiB"),
            ("It takes 12&nbsp;GiB.", "12&nbsp;GiB"),
            ("It takes **12** GiB.", "12** GiB"),
            ("It takes **12 GiB**.", "12 GiB"),
            ("It takes 1,234.5 MB of it.", "1,234.5 MB"),
            ("It needs 12 GiB 3 times.", "12 GiB"),
            ("It needs < 12 GiB, and a batch > 3.", "12 GiB"),
            ("It reads 3.35 TB/s.", "3.35 TB/s"),
            ("It does 300 TFLOP/s.", "300 TFLOP/s"),
            ("It does 1500 tokens/s.", "1500 tokens/s"),
            ("It does 1500 tokens per second.", "1500 tokens per second"),
            ("It takes 90 s.", "90 s"),
            ("It takes ~5 minutes.", "~5 minutes"),
            ("It takes 16 bytes per parameter.", "16 bytes"),
            ("It takes 4 bytes per second.", "4 bytes"),
            ("It takes 3 gigabytes.", "3 gigabytes"),
            ("It sends 1.2 Gbit/s.", "1.2 Gbit/s"),
            ("It sends 96 Gbps.", "96 Gbps"),
            ("It sends 5 gb per second or 7 Gb per second.", "7 Gb per second"),
            ("It does 312 TFLOPS.", "312 TFLOPS"),
            ("It does 2 PFLOPs.", "2 PFLOPs"),
            ("It does 5 tok/s.", "5 tok/s"),
            ("It does 7 it/s.", "7 it/s"),
            ("The loss is 0.14 nats higher.", "0.14 nats"),
            ("It takes 3 days.", "3 days"),
            ("It takes 40 nanoseconds.", "40 nanoseconds"),
            ("It draws 700 W.", "700 W"),
            ("It costs $2.50 an hour.", "$2.50"),
            ("It is faster by a factor of 2.5.", "factor of 2.5"),
            ("It is 2 times longer.", "2 times"),
            ("It needs four times the memory.", "four times the memory"),
            ("It is ten times\nfaster.", "ten times faster"),
            ("It takes a third of the time.", "a third of the time"),
            ("It is an order of magnitude slower.", "an order of magnitude"),
            ("It is twice as fast.", "twice as fast"),
            ("It needs half the memory.", "half the memory"),
            ("| a | 12 GiB |\n|---|---|", "12 GiB"),
            ("> It takes 12 GiB.", "12 GiB"),
            ("- It takes 12 GiB.", "12 GiB"),
            ("It takes [12 GiB](index.md).", "12 GiB"),
            ('It takes <b class="x">12 GiB</b>.', "12 GiB"),
        ],
    )
    def test_a_typed_figure_is_named(self, repository, text, figure):
        assert problems_of(repository, text) == [f"1: a figure typed by hand: {figure}. Fix: {LINK_OR_CLAIM}"]

    def test_a_figure_is_found_at_its_line_and_across_a_line_break(self, repository):
        found = problems_of(
            repository, "First line.\nThe step of this model takes 12\nGiB, and is twice as\nfast.\n\nIt takes 7 s."
        )
        assert [problem.split(". Fix")[0] for problem in found] == [
            "2: a figure typed by hand: 12 GiB",
            "3: a figure typed by hand: twice as fast",
            "6: a figure typed by hand: 7 s",
        ]

    @pytest.mark.parametrize("before", ["| ` | a |\n|---|---|", "Text ` of\ntwo lines"])
    def test_an_open_quotation_of_code_hides_no_figure_in_a_row_of_a_table(self, repository, before):
        assert problems_of(repository, f"{before}\n| 12 GiB | b |\n| ` | c |") == [
            f"3: a figure typed by hand: 12 GiB. Fix: {LINK_OR_CLAIM}"
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "A batch of 4 x 512 tokens, 32 × 512 tokens, or 1,024 of 4x512.",
            "bf16, fp16, fp32, tf32, int8, and 16-bit weights.",
            "An 8B model, Llama-3-8B, a 1.5B one, GPT-2, and BERT-large.",
            "Python 3.11, torch 2.13.0, transformers 5.23, CUDA 12.8, compute capability 8.0.",
            "Since 2022, in 3 steps, with 24 layers, at batch 1, sections 2.1 to 2.3.",
            "It takes [12 GiB](https://example.org/paper) there.",
            "It is [2.3x faster, says\nits maker](https://example.org/paper).",
            "Set `max_memory={0: '12 GiB'}` or `--limit 20%`.",
            "[[tiny:peak-memory]] at most, [[tiny:step-speed@gpu]] or [[tiny:step-speed@cpu]] faster.",
            "## Title { #at-12-gib }",
            "An image: ![a drawing](assets/12gb.svg)",
            "See https://example.org/12GB for it.",
            "<!-- 12 GiB, to be done -->",
            "The page says how `[[notebook:claim]]` is written.",
            "An H100-80GB, an A100-40GB, a 2-core machine.",
            "Learning rate 5e-5, 0.9 and 0.999.",
            "Over 1 Gbit/s, 400 Gb/s and 2.5 Gbit/s Ethernet, in 16 bits, with 4-bit weights.",
            "A model of ten times the size, half as many bytes, and 3 times in a row.",
        ],
    )
    def test_what_is_allowed_passes(self, repository, text):
        assert problems_of(repository, text) == []

    @pytest.mark.parametrize("key", ["title", "description"])
    def test_a_figure_in_the_front_matter_is_named(self, repository, key):
        line = repository.edit(repository.page, f"{key}: ", f"{key}: Saves 12 GiB. ")
        (problem,) = repository.page_problems()
        assert (
            problem
            == f"{repository.page}:{line}: a figure typed by hand: 12 GiB. Fix: leave it to the page, where it is a claim"
        )

    @pytest.mark.parametrize("key", ["title", "description"])
    def test_a_figure_in_the_words_of_a_chart_is_named(self, repository, key):
        line = repository.page.read_text().rsplit(f"\n{key}: ", 1)[0].count("\n") + 2
        head, tail = repository.page.read_text().rsplit(f"\n{key}: ", 1)
        repository.page.write_text(f"{head}\n{key}: 2.3x faster. {tail}")
        (problem,) = repository.page_problems()
        assert problem == (
            f"{repository.page}:{line}: a figure typed by hand: 2.3x. Fix: say it without the figure: the table holds it"
        )

    def test_a_figure_in_the_text_of_a_notebook_is_named_with_its_line(self, repository):
        line = (
            repository.edit(
                repository.source, "# A notebook of the tests.", "# A notebook of the tests.\n# It takes 12 GiB."
            )
            + 1
        )
        (problem,) = lint.check_notebook_prose(repository.source, notebooks.read_source("tiny"))
        fix = "show it by a claim() in a cell, or link its source"
        assert str(problem) == f"{repository.source}:{line}: a figure typed by hand: 12 GiB. Fix: {fix}"


class TestClaims:
    def test_an_unknown_claim_gets_the_nearest_name(self, repository):
        assert problems_of(repository, "Text.\n\nIt takes [[tiny:peak-memry]].") == [
            "3: unknown figure [[tiny:peak-memry]]: no claim 'peak-memry' in the records of tiny (did you mean peak-memory?). "
            "Fix: take a name of the ledger, or add the claim to the notebook and record it"
        ]

    def test_an_unknown_notebook_gets_the_nearest_name(self, repository):
        (problem,) = problems_of(repository, "It takes [[tinny:peak-memory]].")
        assert (
            "1: unknown figure [[tinny:peak-memory]]: no record of a notebook 'tinny' (did you mean tiny?)" in problem
        )

    @pytest.mark.parametrize(
        "written", ["[[peak-memory]]", "[[tiny:Peak]]", "[[tiny:peak-memory@tpu]]", "[[tiny: peak-memory]]"]
    )
    def test_a_claim_that_is_misspelt_does_not_pass_as_text(self, repository, written):
        assert problems_of(repository, f"It takes {written}.") == [
            f"1: {written} is not of the form [[notebook:claim]]. Fix: write it so, with @cpu, @gpu or @any behind the claim where wanted"
        ]

    def test_a_claim_broken_over_two_lines_does_not_pass_as_text(self, repository):
        (problem,) = problems_of(repository, "It takes [[tiny:\npeak-memory]].")
        assert problem.startswith("1: [[tiny: peak-memory]] is not of the form")

    def test_a_claim_in_a_heading_is_refused(self, repository):
        assert problems_of(repository, "Text.\n\n## It takes [[tiny:peak-memory]]") == [
            "3: a claim in a heading, whose anchor would change with the value. Fix: put it into the sentence under the heading"
        ]

    def test_a_claim_in_a_link_is_refused(self, repository):
        assert problems_of(repository, "It takes [at most\n[[tiny:peak-memory]] here](https://example.org).") == [
            "2: [[tiny:peak-memory]] stands in a link, which may hold no button. Fix: put it beside the link"
        ]

    def test_a_claim_that_no_page_shows_is_named_in_its_record(self, repository):
        repository.edit(repository.page, "and runs at [[tiny:step-speed]] the speed", "and runs")
        (problem,) = repository.page_problems()
        line = repository.record.read_text().split('"step-speed"')[0].count("\n") + 1
        assert problem == (
            f"{repository.record}:{line}: no page shows the claim step-speed. "
            "Fix: show it by [[tiny:step-speed]], or remove it from the notebook"
        )

    def test_an_exact_figure_that_is_another_on_another_machine_is_named_in_the_older_record(self, repository):
        older = json.loads(repository.record.read_text())
        older["date"], older["machine"]["name"] = "2020-01-01", "old-machine"
        older["claims"]["peak-memory"]["value"] = 12.6  # within the tolerance between versions of the libraries
        older["claims"]["step-speed"]["value"] = 1.2  # measured
        older["tables"]["by-batch"]["rows"][1][1] = 4.0
        records.write(older)
        (problem,) = repository.page_problems()
        line = Path("results/tiny/old-machine.json").read_text().split('"by-batch"')[0].count("\n") + 1
        assert problem == (
            f"results/tiny/old-machine.json:{line}: by-batch, row 2, plain, is 4 here and 5 in test-machine.json, and it is the same on "
            "every machine. Fix: make the record again on that machine (`make record NOTEBOOKS=tiny`), or remove it"
        )

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('"value": 12.5', '"value": 12.6'),
            ('"at_most": 13', '"at_most": 14'),
            ('"max": 0.2', '"max": 0.3'),
            ("of a step that", "of a stop that"),
            ('"command": "make record', '"command": "make believe'),
            (" 2.0\n", " 2.5\n"),
        ],
    )
    def test_a_record_in_which_a_hand_changed_anything_is_named(self, repository, old, new):
        repository.edit(repository.record, old, new)
        line = repository.record.read_text().split('"seal"')[0].count("\n") + 1
        assert repository.page_problems() == [
            f"{repository.record}:{line}: a hand has changed the record since its run wrote it. Fix: restore it with "
            f"`git checkout {repository.record}` or make it again with `make record NOTEBOOKS=tiny`"
        ]

    def test_the_spaces_of_a_record_may_change_and_the_order_of_its_columns_may_not(self, repository):
        data = json.loads(repository.record.read_text())
        repository.record.write_text(json.dumps(data))
        assert repository.page_problems() == []
        columns = data["tables"]["by-batch"]["columns"]
        data["tables"]["by-batch"]["columns"] = dict(reversed(columns.items()))
        repository.record.write_text(json.dumps(data))
        (problem,) = repository.page_problems()
        assert "a hand has changed the record since its run wrote it" in problem

    def test_a_claim_in_code_is_not_shown(self, repository):
        repository.edit(repository.page, "[[tiny:step-speed]]", "`[[tiny:step-speed]]`")
        (problem,) = repository.page_problems()
        assert "no page shows the claim step-speed" in problem


class TestCode:
    def test_code_that_is_no_snippet_is_refused(self, repository):
        assert problems_of(repository, "Text.\n\n```python\nimport torch\n```") == [
            "4: a code block that is not a snippet: import torch. "
            'Fix: put it into snippets/ and include it: --8<-- "guide/file:region"'
        ]

    @pytest.mark.parametrize("fence", ["```", "~~~", "````python", "``` text", "    ```bash", "> ```yaml"])
    def test_no_kind_of_fence_is_overlooked(self, repository, fence):
        indent = fence[: len(fence) - len(fence.lstrip(" >"))]
        end = indent + "`" * fence.count("`") + "~" * fence.count("~")
        (problem,) = problems_of(repository, f"{fence}\n{indent}x = 1\n{end}")
        assert problem.startswith("2: a code block that is not a snippet")

    def test_code_after_an_included_snippet_is_refused(self, repository):
        (problem,) = problems_of(repository, '```python\n--8<-- "guide/step.py"\nmore = 1\n```')
        assert problem.startswith("3: a code block that is not a snippet: more = 1")

    def test_a_snippet_that_is_gone_gets_the_nearest_name(self, repository):
        assert problems_of(repository, '```python\n--8<-- "guide/stp.py"\n```') == [
            "2: there is no snippet guide/stp.py (did you mean guide/step.py?). Fix: add snippets/guide/stp.py, or correct the name"
        ]

    def test_a_folder_is_no_snippet(self, repository):
        (problem,) = problems_of(repository, '```python\n--8<-- "guide"\n```')
        assert problem.startswith("2: there is no snippet guide")

    def test_a_region_that_is_gone_gets_the_nearest_name(self, repository):
        repository.snippet.write_text(repository.snippet.read_text().replace(":step]", ":steps]"))
        line = repository.page.read_text().split("--8<--")[0].count("\n") + 1
        assert repository.page_problems() == [
            f"{repository.page}:{line}: snippet guide/step.py has no region step (did you mean steps?). "
            "Fix: mark it in snippets/guide/step.py with --8<-- [start:step] and --8<-- [end:step]"
        ]

    def test_a_region_without_an_end_is_refused(self, repository):
        repository.edit(repository.snippet, "# --8<-- [end:step]\n", "")
        (problem,) = repository.page_problems()
        assert "snippet guide/step.py has no region step. Fix" in problem

    def test_a_snippet_that_no_page_includes_is_named(self, repository):
        repository.snippet.with_name("other.py").write_text("print()\n")
        assert repository.page_problems() == [
            "snippets/guide/other.py: no page includes this snippet. Fix: include it, or delete it"
        ]

    def test_a_block_without_an_end_does_not_hide_the_rest_of_the_page(self, repository):
        (problem,) = problems_of(repository, '```python\n--8<-- "guide/step.py"\n\nIt takes 12 GiB.')
        assert problem == "1: this block has no end. Fix: close it by a fence as long as the first"

    def test_a_longer_fence_holds_a_shorter_one(self, repository):
        repository.snippet.with_name("block.txt").write_text("```table\n```\n")
        assert problems_of(repository, '````text\n--8<-- "guide/block.txt"\n````') == []


class TestBlocks:
    CHART = "```chart\ntable: tiny:by-batch\nmark: line\nx: batch\ny: plain\ntitle: Peak memory\ndescription: It rises.\n```"

    def test_a_sound_chart_passes(self, repository):
        assert problems_of(repository, self.CHART) == []

    @pytest.mark.parametrize(
        ("old", "new", "line", "what"),
        [
            ("x: batch", "x: bach", 4, "table tiny:by-batch has no column bach (did you mean batch?). Fix: take one of batch, plain, checkpointed"),
            ("y: plain", "y: [plain, plane]", 5, "table tiny:by-batch has no column plane (did you mean plain?)"),
            ("description: It rises.\n", "", 1, "a chart without a description. Fix: add `description:`, which is read to those who do not see"),
            ("description: It rises.", "description:", 1, "a chart without a description"),
            ("title: Peak memory\n", "", 1, "a chart without a title. Fix: add `title:`, what the chart shows"),
            ("mark: line\n", "", 1, "a chart without a mark. Fix: add `mark:`, one of line, bar, area"),
            ("mark: line", "mark: lin", 3, "there is no mark lin (did you mean line?). Fix: take one of line, bar, area"),
            ("title:", "log: true\ntitle:", 6, "log: True names no axes. Fix: write [x], [y] or [x, y]"),
            ("title:", "logs: [x]\ntitle:", 6, "a chart has no logs (did you mean log?). Fix: take one of table, mark"),
            ("tiny:by-batch", "tiny:by-bach", 2, "unknown table: no table 'by-bach' in the records of tiny (did you mean by-batch?)"),
            ("tiny:by-batch", "tinny:by-batch", 2, "unknown table: no record of a notebook 'tinny' (did you mean tiny?)"),
            ("table: tiny:by-batch\n", "", 1, "this chart block names no table. Fix: begin with `table: notebook:name`"),
            ("x: batch", "x: [batch", 1, "this chart block is not YAML"),
        ],
    )  # fmt: skip
    def test_a_chart_that_cannot_be_drawn_is_named(self, repository, old, new, line, what):
        (problem,) = problems_of(repository, self.CHART.replace(old, new, 1))
        assert problem.startswith(f"{line}: {what}")

    def test_an_unknown_column_of_a_table_gets_the_nearest_name(self, repository):
        (problem,) = problems_of(repository, "```table\ntable: tiny:by-batch\ncolumns: [batch, plian]\n```")
        assert problem.startswith("3: table tiny:by-batch has no column plian (did you mean plain?)")

    def test_a_misspelt_key_of_a_table_is_not_ignored(self, repository):
        (problem,) = problems_of(repository, "```table\ntable: tiny:by-batch\ncolums: [batch]\n```")
        assert problem.startswith("3: a table has no colums (did you mean columns?)")

    @pytest.mark.parametrize("content", ["", "tiny:by-batch", "- 1", "table: 5"])
    def test_a_block_that_names_no_table_is_told_how(self, repository, content):
        assert problems_of(repository, f"```table\n{content}\n```") == [
            "1: this table block names no table. Fix: begin with `table: notebook:name`"
        ]


class TestNothingToCheck:
    def test_no_record_fails(self, repository):
        repository.record.unlink()
        assert repository.page_problems() == ["results: there is no record. Fix: run `make record`"]

    def test_no_page_fails(self, repository):
        repository.page.unlink()
        assert repository.page_problems() == ["docs: there is no page. Fix: run from the root of the repository"]

    def test_an_empty_page_shows_no_claim(self, repository):
        repository.page.write_text("")
        assert len(repository.page_problems()) == 3  # two claims, one snippet


def test_front_matter_without_an_end_is_named(repository):
    repository.page.write_text(repository.page.read_text().replace("\n---\n", "\n", 1))
    assert (
        f"{repository.page}:1: the front matter has no end. Fix: close it by a line ---" in repository.page_problems()
    )


def test_a_page_that_is_not_utf8_is_named(repository):
    repository.page.write_bytes(repository.page.read_bytes() + "café".encode("latin-1"))
    with pytest.raises(Exception, match=r"^docs/index\.md:\d+: not UTF-8 text"):
        lint.check()


def test_every_page_is_checked_however_deep(repository):
    deep = repository.page.parent / "a" / "b" / "page.md"
    deep.parent.mkdir(parents=True)
    deep.write_text("It takes 12 GiB.\n")
    (problem,) = repository.page_problems()
    assert problem.startswith("docs/a/b/page.md:1: a figure typed by hand: 12 GiB")


class TestLinks:
    def test_a_link_to_a_page_that_does_not_exist_is_named_with_the_nearest(self, repository):
        (repository.page.parent / "other.md").write_text("# Other\n")
        found = problems_of(repository, "See [the other](othr.md).")
        assert found == ["1: there is no othr.md (did you mean other.md?). Fix: correct the link"]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("See [the\nother](othr.md).", 1),
            ("See [the other](\nothr.md) or\nit.", 1),
            ('First.\nSee [the other](othr.md "The other").', 2),
            ("See [the other](<othr.md>).", 1),
            ("See [the other][it].\n\n[it]: othr.md 'The other'", 3),
            ("See [the other](othr.md#trap), [and it](other.md).", 1),
        ],
    )
    def test_no_form_of_a_link_is_overlooked(self, repository, text, line):
        (repository.page.parent / "other.md").write_text("# Other\n")
        found = problems_of(repository, text)
        assert found == [f"{line}: there is no othr.md (did you mean other.md?). Fix: correct the link"]

    @pytest.mark.parametrize("level", ["##", "###"])
    def test_a_section_without_an_anchor_of_its_own_is_named_with_one(self, repository, level):
        assert problems_of(repository, f"Text.\n\n{level} What it does") == [
            "3: this section has no anchor of its own: What it does. Fix: end the line with { #what-it-does }"
        ]

    def test_a_section_with_an_anchor_and_a_comment_in_code_pass(self, repository):
        assert problems_of(repository, "## What it does { #what }\n\n#### Small\n\n`## no section`") == []

    def test_a_link_to_an_anchor_that_is_gone_is_named_with_the_nearest(self, repository):
        (repository.page.parent / "other.md").write_text("# Other\n\n## The trap { #dtype-trapp }\n")
        found = problems_of(repository, "Text.\n\nSee [the trap](other.md#dtype-trap).")
        assert len(found) == 1
        assert found[0].startswith("3: ") and "has no anchor #dtype-trap (did you mean dtype-trapp?)" in found[0]

    @pytest.mark.parametrize(
        "link", ["other.md", "other.md#trap", "https://example.org/a.md#b", "`[a](none.md)`", 'other.md "a (b)"']
    )
    def test_a_sound_link_passes(self, repository, link):
        (repository.page.parent / "other.md").write_text("# Other\n\n## The trap { #trap }\n")
        assert problems_of(repository, link if link.startswith("`") else f"See [it]({link}).") == []
