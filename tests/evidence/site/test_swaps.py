"""Two claims of a table that were exchanged are named; a table whose claims stand where they belong passes."""

from pathlib import Path

from built import ROOT

from evidence import cited, records
from evidence.records import Record
from evidence.site import prose, swaps

CLAIMS = {
    "checkpointing-memory": "Peak memory with activation checkpointing against one without",
    "bf16-memory": "Peak memory in bf16 against fp32",
    "compile-memory": "Peak memory of a compiled step against an eager one",
}
FOUND = {"tiny": [Record(Path("results/tiny/exact.json"), {"claims": {name: {"sentence": words} for name, words in CLAIMS.items()}})]}
TABLE = """\
| Method | Speed | Memory |
|---|---|---|
| Checkpointing | slower | [[tiny:{}]] |
| bf16 | faster | [[tiny:{}]] |
| `torch.compile` | faster | [[tiny:{}]] |
"""


def problems_of(*names):
    (block,) = prose.blocks(TABLE.format(*names))
    return [str(problem) for problem in swaps.check("docs/a.md", block, FOUND)]


def test_exchanged_claims_are_named_with_both_lines():
    assert problems_of("bf16-memory", "checkpointing-memory", "compile-memory") == [
        "docs/a.md:3: [[tiny:bf16-memory]] and [[tiny:checkpointing-memory]] in line 4 fit each other's row better than their own. "
        "Fix: exchange them, or say in each row what its claim is about"
    ]


def test_an_exchanged_claim_is_named_though_it_is_the_second_of_its_cell():
    second = "[[tiny:of-another]]; on a V100: [[tiny:bf16-memory]]"
    (block,) = prose.blocks(TABLE.format("bf16-memory", "checkpointing-memory", "compile-memory").replace("[[tiny:bf16-memory]]", second))
    assert any(str(problem).startswith("docs/a.md:3: [[tiny:bf16-memory]] and [[tiny:checkpointing-memory]] in line 4") for problem in swaps.check("docs/a.md", block, FOUND))


def test_exchanged_claims_of_a_list_are_named():
    text = "- Checkpointing takes [[tiny:bf16-memory]]\n  of the peak.\n- With bf16 it is [[tiny:checkpointing-memory]].\n"
    (block,) = prose.blocks(text)
    (problem,) = swaps.check("docs/a.md", block, FOUND)
    assert str(problem).startswith("docs/a.md:1: [[tiny:bf16-memory]] and [[tiny:checkpointing-memory]] in line 3")


def test_a_claim_that_stands_twice_or_is_unknown_is_no_exchange():
    assert problems_of("bf16-memory", "bf16-memory", "gone") == []


def test_of_neighbors_exchanged_in_the_tables_of_the_site_nearly_all_are_found_and_nothing_in_the_tables_as_they_are():
    found = cited.with_cited(records.load_all(ROOT / "results"), ROOT / "results")
    tried, missed = 0, []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text()
        assert not problems_in(text, found), path
        lines = text.splitlines()
        for upper in range(len(lines) - 1):
            rows = [lines[number].split("|") for number in (upper, upper + 1) if lines[number].startswith("|")]
            for column in range(min(map(len, rows)) if len(rows) == 2 else 0):
                one, other = (swaps.CLAIM.search(row[column]) for row in rows)
                if one and other and one[0] != other[0]:
                    exchanged = [[*row] for row in rows]
                    exchanged[0][column] = rows[0][column].replace(one[0], other[0], 1)
                    exchanged[1][column] = rows[1][column].replace(other[0], one[0], 1)
                    tried += 1
                    if not problems_in("\n".join([*lines[:upper], *map("|".join, exchanged), *lines[upper + 2 :]]), found):
                        missed.append(f"{path.name}:{upper + 1}: {one[0]} and {other[0]}")
    print(f"{tried - len(missed)} of {tried} found", *missed, sep="\n")
    assert tried > 100 and len(missed) <= 0.05 * tried, missed


def problems_in(text, found):
    return [problem for block in prose.blocks(text) if block.language is None for problem in swaps.check("docs/a.md", block, found)]
