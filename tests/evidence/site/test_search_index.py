"""The search index as it is fetched: sections with their own first sentence, without what stands there twice."""

import json

import pytest

from evidence.site import search_index


@pytest.fixture
def slimmed(tmp_path):
    """Writes an index with these sections, {location: text}, slims it and reads it."""

    def run(sections, redirects="old: nowhere.md"):
        path, old = tmp_path / "search_index.json", tmp_path / "redirects.yml"
        docs = [{"location": place, "title": "A <code>title</code>", "text": text} for place, text in sections.items()]
        path.write_text(json.dumps({"config": {}, "docs": docs}))
        old.write_text(redirects)
        search_index.slim(path, old)
        data = json.loads(path.read_text())
        return {doc["location"]: doc["text"] for doc in data["docs"]}, data["moved"]

    return run


def test_a_section_begins_with_its_own_first_sentence_also_behind_a_table(slimmed):
    table_first = (
        "Method Speed plain 1 2.5x <p>It needs <code>Ampere</code> or later. On others it fails.</p> <p>More.</p>"
    )
    texts, _ = slimmed({"a/#b": table_first})
    assert texts == {"a/#b": "It needs Ampere or later.\nmethod speed plain 1 others fails more"}


def test_words_that_only_lead_to_the_next_sentence_are_no_teaser(slimmed):
    text = "<p><strong>What it does.</strong> LoRA freezes the weights of the model. It trains less.</p>"
    assert slimmed({"a/#b": text})[0]["a/#b"] == "LoRA freezes the weights of the model.\ntrains less"


def test_a_section_without_prose_keeps_its_words(slimmed):
    assert slimmed({"a/#b": "<pre><code>pip install x</code></pre>"})[0] == {"a/#b": "pip install x"}


def test_a_long_sentence_is_cut_where_the_result_ends(slimmed):
    text = slimmed({"a/": f"<p>{'word ' * 100}</p>"})[0]["a/"]
    assert len(text.split("\n")[0]) == search_index.LONGEST


def test_a_word_stands_at_most_twice_after_the_first_sentence(slimmed):
    text = "<p>One sentence of ordinary length.</p><pre><code>Loss loss.LOSS = loss(batch, 4, 4, 4, 4)</code></pre>"
    assert slimmed({"a/#b": text})[0]["a/#b"] == "One sentence of ordinary length.\nloss loss batch 4 4 4 4"


def test_of_a_notebook_only_what_no_guide_says_is_kept_and_none_of_its_numbers(slimmed):
    text = "<p>A step. Then more.</p><pre><code>quagmire = step(1.25)\nprint(quagmire, 3)</code></pre>"
    texts, _ = slimmed({"notebooks/a/#b": text, "a/#b": "<p>Then a step. It can print more.</p>"})
    assert texts["notebooks/a/#b"] == "A step.\nquagmire step"
    assert texts["a/#b"] == "Then a step.\nprint more"


def test_the_ledger_is_found_as_a_page_and_repeats_no_claim(slimmed):
    texts, _ = slimmed({"evidence/ledger/": "<p>Every claim.</p>", "evidence/ledger/#one_gpu": "<p>Claims.</p>"})
    assert list(texts) == ["evidence/ledger/"]


def test_a_name_that_a_page_had_leads_to_its_place_and_is_no_result(slimmed):
    lines = "Perf_old: a.md#b\nother: index.md\nlost: a.md#gone\n"
    texts, moved = slimmed({"": "<p>Home.</p>", "a/": "<p>A.</p>", "a/#b": "<p>B.</p>"}, lines)
    assert list(texts) == ["", "a/", "a/#b"]
    assert moved == {"perf_old": "a/#b", "other": ""}
