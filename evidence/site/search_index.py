"""Material's search index, made smaller and clearer before anybody fetches it.

A section begins with its own first sentence, which a result shows; the rest of its text is words to find it by, each at most
twice, without those that every sentence has, which docs/assets/search.js leaves out of a query too, and without decimals. A notebook
repeats its guide and prints tables, so only names that no guide has are kept of it, each once. The ledger repeats the notebooks. An
entry of the glossary is found by its term and its first sentence, since the page that it leads to has the rest.
The names that pages had lead to their places: they are no results of their own.

Words are stored once, each with the sections that have it: half of what the same words weigh in the order of the text, which no
query asks for. docs/assets/find.js puts them back.
"""

import json
import os
import re
from collections import Counter
from pathlib import Path

from . import best_bets, redirects

BLOCKS = re.compile(r"</?(?:p|li|ol|ul|pre)[^>]*>")
TAGS = re.compile(r"<[^>]+>")
PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.S)
CAPTION = re.compile(r"(?:cited|derived|measured|predicted|traced)\b(?: on [^:]+)?: ")  # of a table or a chart
SENTENCE = re.compile(r".+?[.:?!](?=\s|$)")
SHORT = 4  # words
LONGEST = 170  # characters of a first sentence
WORD = re.compile(r"[^\s,;:()\[\]{}=\"'`]+")
DECIMAL = re.compile(r"[\d.,x%+-]*\d\.\d[\d.,x%+-]*$")
NUMBER = re.compile(r"[\d.,x%+-]+$")
PARTS = re.compile(r"[\s\u200b\-_,:;!?=\[\](){}<>'\"`/|*+%@#&~]+|\.(?!\d)")  # as mkdocs.yml parts words
OFTEN = 2  # a word that stands in a section more often says no more about it
UNASKED = re.compile(rf"{DECIMAL.pattern}|[\d·]$")  # docs/assets/search/query.mjs leaves a digit out of a query
LARGE, MOST_NUMBERS = 500, 0.25  # words of a section that is a large table, and the share of numbers among them
NAME = re.compile(r"[^\W\d]{4,}$")  # of a notebook: letters alone
LEDGER = "evidence/ledger/#"
ATTRIBUTE = re.compile(r"dryrun/#dryrun\.\w+\.")  # of a class, whose own entry says what it holds
GLOSSARY = "glossary/#"
COMMON = (
    "a about after all also am an and any are as at be because been but by can could did do does for from get got had has "
    "have how i if in into is it its just like may me might my no not of on only or our out should so some than that the "
    "their them then there these they this to too use used uses was we were what when where which while who why will with "
    "without would you your "
    "vs versus although therefore though thus whereas both each even same still such whose "
    "make makes making much please need needs see take takes taking "
    "didn doesn don isn ll re s t ve won wouldn "  # what an apostrophe leaves
    # The rest of lunr's own, which its pipeline leaves out of the index: unknown there, they would pass for typing errors.
    "able across almost among cannot dear either else ever every he her hers him his however least let likely most must neither nor "
    "off often other own rather said say says she since tis twas us wants whom yet"
)
UNSAID = frozenset(COMMON.split())
# Of what JSON writes as it is: a number ends in one of the first 64, and those before count how often it holds 64.
DIGITS = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"\\')


def slim(index, path=redirects.FILE, bets=best_bets.FILE):
    """Rewrites the index at a path."""
    data = json.loads(Path(index).read_text(encoding="utf-8"))
    docs = [doc for doc in data["docs"] if not doc["location"].startswith(LEDGER) and not ATTRIBUTE.match(doc["location"])]
    explained = {word for doc in docs if not _is_notebook(doc) for word in WORD.findall(_plain(doc["text"]))}
    told = {}  # notebook -> words of its sections so far
    data["docs"] = [_section(doc, explained, told.setdefault(doc["location"].partition("#")[0], set())) for doc in docs]
    data["digits"] = DIGITS
    data["words"], data["places"] = _by_word([doc.pop("words").split() for doc in data["docs"]])
    kept = {doc["location"] for doc in data["docs"]}
    data["common"] = COMMON.split()
    data["moved"] = {old: place for old, place in _moved(path) if place in kept}
    data["bets"] = best_bets.places(bets)
    Path(index).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _moved(path):
    for old, (page, anchor) in redirects.load(path).items():
        yield old.lower(), redirects.address(page) + (anchor and f"#{anchor}")


def _is_notebook(doc):
    return doc["location"].startswith("notebooks/")


def _section(doc, explained, told):
    paragraphs = [_plain(text) for text in PARAGRAPH.findall(doc["text"])]
    paragraph = next((text for text in paragraphs if not CAPTION.match(text)), "")
    first = _first_sentence(paragraph or CAPTION.sub("", paragraphs[0])) if paragraphs else ""
    words = _plain(doc["text"]).replace(first, "", 1).split()
    if len(words) > LARGE and sum(map(bool, map(NUMBER.match, words))) > MOST_NUMBERS * len(words):
        words = dict.fromkeys(
            word for word in words if not NUMBER.match(word)
        )  # else any message with a number finds it
    rest = " ".join(word for word in words if word.lower().strip(".,:;") not in UNSAID and not DECIMAL.match(word))
    if _is_notebook(doc):
        words = dict.fromkeys(
            part for word in WORD.findall(rest) if word not in explained for part in PARTS.split(word.lower())
        )
        words = [word for word in words if NAME.match(word) and word not in told]
        told.update(words)
        rest = " ".join(words)
    rest = _seldom(rest)
    if not first:  # a section of code or a table shows its first words
        first = rest if len(rest) <= LONGEST else rest[:LONGEST].rpartition(" ")[0]
        rest = rest[len(first) :]
    if doc["location"].startswith(GLOSSARY):
        rest = ""
    return doc | {"title": _plain(doc["title"]), "text": first, "words": rest}


def _by_word(sections):
    """(the words in alphabetical order, each without the letters that it shares with the one before, whose number stands
    first; for each the sections that have it, as distances from one to the next, 0 where a section has it again).

    Of sections 0: memory, 1: memory memories, 2: step, it is "0memories\\n5y\\n0step" and "#\\n!#\\n$": of `DIGITS`, ! is 0, # is 1, $ is 2.
    """
    found, previous, ends, places = {}, "", [], []
    for number, words in enumerate(sections):
        for word in words:
            found.setdefault(word, []).append(number)
    for word in sorted(found):
        shared = len(os.path.commonprefix([previous[:9], word]))
        ends.append(f"{shared}{word[shared:]}")
        places.append("".join(_written(place - before) for before, place in zip([0, *found[word]], found[word])))
        previous = word
    return "\n".join(ends), "\n".join(places)


def _written(number):
    more, last = divmod(number, 64)
    text = DIGITS[last]
    while more:
        more, digit = divmod(more, len(DIGITS) - 64)
        text = DIGITS[64 + digit] + text
    return text


def _seldom(text):
    """The words of a text, as the search parts them, each at most OFTEN times, without those that no query asks for.
    Numbers of several digits stay, each time: they tell messages apart."""
    counts, kept = Counter(), []
    for word in filter(None, PARTS.split(text.lower())):
        counts[word] += 1
        if word not in UNSAID and not UNASKED.match(word) and (counts[word] <= OFTEN or NUMBER.match(word)):
            kept.append(word)
    return " ".join(kept)


def _first_sentence(text):
    """The first sentence of some length: "What it does." only leads to the next."""
    sentences = [found[0].strip() for found in SENTENCE.finditer(text)] or [text]
    return next((one for one in sentences if len(one.split()) > SHORT), sentences[0])[:LONGEST]


def _plain(text):
    return " ".join(TAGS.sub("", BLOCKS.sub(" ", text)).split())
