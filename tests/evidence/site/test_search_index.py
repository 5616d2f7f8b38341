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
        words = put_back(data)
        return {doc["location"]: "\n".join(filter(None, [doc["text"], words.get(number)])) for number, doc in enumerate(data["docs"])}, data["moved"]

    return run


def put_back(data):
    """{number of a section: its words, in alphabetical order}, as docs/assets/find.js reads them."""
    found, word = {}, ""
    for end, places in zip(data["words"].split("\n"), data["places"].split("\n")):
        word, place, more = word[: int(end[:1] or 0)] + end[1:], 0, 0
        for digit in map(data["digits"].index, places):
            if digit >= 64:
                more = more * (len(data["digits"]) - 64) + digit - 64
            else:
                place, more = place + more * 64 + digit, 0
                found.setdefault(place, []).append(word)
    return {place: " ".join(words) for place, words in found.items()}


def test_words_are_put_back_whole_and_as_often_as_they_stood_also_behind_many_sections():
    sections = [["zero"], *[["zeros", "a"]] * 3, *[[]] * 5000, ["a", "a", "überall", "🤗s", "🤗t"]]
    words, places = search_index._by_word(sections)
    assert words.split("\n") == ["0a", "0zero", "4s", "0überall", "0🤗s", "1t"]
    found = put_back({"words": words, "places": places, "digits": search_index.DIGITS})
    assert found == {0: "zero", 1: "a zeros", 2: "a zeros", 3: "a zeros", 5004: "a a überall 🤗s 🤗t"}


def test_a_section_begins_with_its_own_first_sentence_also_behind_a_table(slimmed):
    table_first = (
        "Method Speed plain 1 2.5x <p>It needs <code>Ampere</code> or later. On others it fails.</p> <p>More.</p>"
    )
    texts, _ = slimmed({"a/#b": table_first})
    assert texts == {"a/#b": "It needs Ampere or later.\nfails method more others plain speed"}


def test_words_that_only_lead_to_the_next_sentence_are_no_teaser(slimmed):
    text = "<p><strong>What it does.</strong> LoRA freezes the weights of the model. It trains less.</p>"
    assert slimmed({"a/#b": text})[0]["a/#b"] == "LoRA freezes the weights of the model.\nless trains"


def test_the_caption_of_a_table_is_no_teaser_unless_there_is_nothing_else(slimmed):
    caption = "<p>measured on Test CPU: What each file weighs in bytes. torch 2.13.0, the code</p>"
    assert slimmed({"a/#b": f"{caption}<p>Weights are the smaller part of it.</p>"})[0]["a/#b"].startswith("Weights are")
    assert slimmed({"a/#b": caption})[0]["a/#b"].startswith("What each file weighs in bytes.")


def test_a_section_without_prose_keeps_its_words(slimmed):
    assert slimmed({"a/#b": "<pre><code>pip install x</code></pre>"})[0] == {"a/#b": "pip install x"}


def test_a_long_section_without_prose_shows_its_first_words_and_keeps_the_others(slimmed):
    words = [f"word{number:02}" for number in range(40)]
    shown, kept = slimmed({"a/#b": f"<pre><code>{' '.join(words)}</code></pre>"})[0]["a/#b"].split("\n")
    assert shown == " ".join(words[:24]) and kept == " ".join(words[24:])


def test_a_long_sentence_is_cut_where_the_result_ends(slimmed):
    text = slimmed({"a/": f"<p>{'word ' * 100}</p>"})[0]["a/"]
    assert len(text.split("\n")[0]) == search_index.LONGEST


def test_a_word_stands_at_most_twice_after_the_first_sentence(slimmed):
    text = "<p>One sentence of ordinary length.</p><pre><code>Loss loss.LOSS = loss(batch, 64, 64, 64, 4)</code></pre>"
    assert slimmed({"a/#b": text})[0]["a/#b"] == "One sentence of ordinary length.\n64 64 64 batch loss loss"


def test_of_a_notebook_only_what_no_guide_says_is_kept_and_none_of_its_numbers(slimmed):
    text = "<p>A step. Then more.</p><pre><code>quagmire = step(1.25)\nprint(quagmire, 3)</code></pre>"
    texts, _ = slimmed({"notebooks/a/#b": text, "a/#b": "<p>Then a step. It can print more.</p>"})
    assert texts["notebooks/a/#b"] == "A step.\nquagmire step"
    assert texts["a/#b"] == "Then a step.\nmore print"


def test_the_ledger_is_found_as_a_page_and_repeats_no_claim(slimmed):
    texts, _ = slimmed({"evidence/ledger/": "<p>Every claim.</p>", "evidence/ledger/#one_gpu": "<p>Claims.</p>"})
    assert list(texts) == ["evidence/ledger/"]


def test_a_name_that_a_page_had_leads_to_its_place_and_is_no_result(slimmed):
    lines = "Perf_old: a.md#b\nother: index.md\nlost: a.md#gone\n"
    texts, moved = slimmed({"": "<p>Home.</p>", "a/": "<p>A.</p>", "a/#b": "<p>B.</p>"}, lines)
    assert list(texts) == ["", "a/", "a/#b"]
    assert moved == {"perf_old": "a/#b", "other": ""}
