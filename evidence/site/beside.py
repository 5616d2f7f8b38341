"""A claim and the words beside it: unit, quantity and direction must be those of the claim, on every machine with a value.

`[[a:b]] GiB` shows the unit twice; `[[a:b]] the time` needs a ratio of times; `[[a:b]] less` a value above zero; "is faster
([[a:b]] the speed)" one above 1; a sentence about BERT-large no claim about an 8B model. And a claim whose own sentence shares
no word with the text around it is probably another than the one meant. Words about a cited claim are those of its source.
"""

import functools
import re

from ..problems import Problem
from ..records import find, format_value
from .prose import INLINE_CODE, without

CLAIM = re.compile(r"\[\[([a-z0-9_]+):([a-z0-9-]+)(?:@(cpu|gpu|any))?\]\]")
UNIT_TYPED = re.compile(
    r"(?:\s|&nbsp;)*(%|percent\b|per cent\b|[kMGT]i?B(?:/s)?\b|(?:giga|mega|kilo|tera)?bytes\b(?! per)|[x×](?=[\s.,;:)])|times\b(?! as)|(?:n|µ|m)?s\b|"
    r"(?:milli|micro|nano)?seconds?\b|minutes?\b|hours?\b|h\b|tokens/s\b|samples/s\b(?=[.,;)])|[GMT]bit/s\b|[GT]FLOPs?\b|nats\b)"
)
OF_A_RATIO = re.compile(
    r"\s+(?:the\s+(?:CPU\s+)?(speed|throughput|samples/s|tokens/s|time|memory|peak|bytes|size)\b|as\s+(?:much|fast|many|large|long)\b)"
)
COMPARED = re.compile(
    r"\s+\**(less|more|fewer|faster|slower|higher|lower|smaller|larger|bigger|longer|shorter|off\s+the)\b"
)
TAKEN_AWAY = re.compile(
    r"\b(saves?|saving|lowers?|frees?|cuts?|shrinks?|falls?|drops?|faster|slower|grows?|rises?|gains?|adds?)"
    r"(?:\s+(?:(?!to\b|from\b|at\b|not\b)[\w-]+)){0,3}?\s+(?:by\s+)?(?:only\s+|about\s+|another\s+)?$"
)
VERDICT = re.compile(
    r"\b(faster|slower|quicker)\b(?![^(:]*\b(?:than|as)\b[^(:]*\b(?:but|while)\b)[^(:\[\]]*[(:]\s*(?:at\s+|only\s+)?$"
)
DENIED = re.compile(
    r"\b(?:no|not|never|nothing|hardly|neither|nor|if|when|where|whether|cannot|isn't|less|how|may|can|why)\b", re.I
)
SPEED = re.compile(r"\b(?:speed|throughput|fast(?:er)?|[\w-]+/s|per second|bandwidth)\b", re.I)
TIME = re.compile(r"\b(?:time|seconds?|duration|latency|slow(?:er)?|hours|minutes|ms|wait(?:ing)?|cost)\b", re.I)
MEMORY = re.compile(
    r"\b(?:memory|peak|bytes|weights?|activations?|state|floor|cache|buffers?|file|size|[KMG]i?B|gradients|logits|holds)\b",
    re.I,
)
SENT = re.compile(rf"{MEMORY.pattern}|\bsen[dt]s?\b|\btraffic\b", re.I)
QUANTITY = {
    "speed": SPEED,
    "throughput": SPEED,
    "time": TIME,
    "memory": MEMORY,
    "peak": MEMORY,
    "bytes": SENT,
    "size": MEMORY,
}
EMPTY_WORDS = {
    "an", "the", "of", "in", "on", "at", "to", "and", "or", "with", "without", "against", "by", "for", "from", "as",
    "is", "are", "that", "this", "than", "it", "its", "their", "which", "what", "who", "one", "two", "three", "after",
    "before", "where", "no", "not", "all", "each", "other", "same",
}  # fmt: skip
FEW = 8  # claims
RATIOS = ("x", "%", "")
MODEL = re.compile(r"\b(BERT-(?:large|base)|GPT-2|DistilBERT|Mixtral|T5|ViT|\d+(?:\.\d+)?B)\b(?!/s)")
CONDITION = re.compile(
    r"\b(\d[\d,]*)\s+(tokens|layers|ranks|GPUs|processes|threads|nodes|workers|classes|rows)\b|\b(batch(?:\s+size)?|rank|TP)\s+(\d[\d,]*)\b"
)
BOUNDARY = re.compile(r"[.;|](?=\s|$)|\n\n")
SIZES = re.compile(r"[kKMGT]i?B\b")
TIMES = re.compile(r"(?:[nµm]?s|minutes|h)$")


def check(path, line, paragraph, found, heading=""):
    """The Problems of the claims of one paragraph, or row of a table, that begins at `line`.

    heading: the text above that says what the paragraph is about: the section's title, the header of the table.
    """
    text = without(INLINE_CODE, paragraph)
    for match in CLAIM.finditer(text):
        notebook, name, where = match.groups()
        try:
            entries = [entry for record, entry in find(found, notebook, name) if _asked(record, where)]
        except LookupError:
            continue  # is a Problem already
        number = line + text.count("\n", 0, match.start())
        before, after = text[: match.start()], text[match.end() :]
        clause = BOUNDARY.split(before.rpartition("]]")[2])[-1]
        around = BOUNDARY.split(before)[-1] + " … " + BOUNDARY.split(after)[0]
        for what, fix in _wrong(entries, clause, after, around) if entries else ():
            yield Problem(path, f"{match[0]} {what}", fix, number)
        if (
            entries
            and entries[0].get("kind") != "cited"
            and _is_stranger(notebook, name, f"{heading} {paragraph}", found)
        ):
            what = f"{match[0]} shares no word with the text around it: the claim is “{entries[0]['sentence']}”"
            yield Problem(path, what, "name the claim that is meant, or say in its words what it is", number)


def _is_stranger(notebook, name, around, found):
    """Whether claim and text share fewer than two words, where a word that few claims of the notebook have counts twice."""
    sentences = {key: entry["sentence"] for record in found[notebook] for key, entry in record.data["claims"].items()}
    all_words = {key: _words(f"{sentence} {key}") for key, sentence in sentences.items()}
    if sentences[name].startswith("The same") or len(sentences) < FEW:
        return False  # its words are those of another claim, or there is hardly another that could be meant
    shared = all_words[name] & _words(CLAIM.sub(" ", around))
    return (
        sum(2 if sum(word in words for words in all_words.values()) <= len(all_words) / 5 else 1 for word in shared) < 2
    )


@functools.cache
def _words(text):
    """The first letters of each word that says something, so that `compiling` meets `compiled`."""
    words = re.findall(r"[a-z][a-z0-9]+|\d[\d,]*", text.lower())
    return frozenset(word[:4] for word in words if word not in EMPTY_WORDS)


def _asked(record, where):
    gpu = "gpu" in record.data.get("machine", {})
    return not record.data.get("machine") or where not in ("cpu", "gpu") or gpu == (where == "gpu")


def _wrong(entries, clause, after, around):
    """(what is wrong, fix) of one claim; clause: the text before it, after: behind it, around: its whole sentence or row."""
    unit, sentence, cited = entries[0]["unit"], entries[0]["sentence"], entries[0].get("kind") == "cited"
    values = [said["value"] for entry in entries for said in entry.get("on", {"": entry}).values() if "value" in said]
    found = [_unit_typed(unit, after), _ratio(unit, sentence, cited, after), _other_conditions(sentence, around)]
    if values:
        found += [_compared(unit, values, clause, after), _verdict(unit, sentence, values, clause)]
    for what, fix in filter(None, found):
        yield what, fix if "typed after" in what else f"{fix}: the claim is “{sentence}”"


def _unit_typed(unit, after):
    typed = UNIT_TYPED.match(after)
    if typed and unit:
        return f"shows its unit, {unit}, and “{typed[1]}” is typed after it", f"take “{typed[1]}” out"
    if typed:
        return f"has no unit, and “{typed[1]}” is typed after it", "give the unit to the claim in its notebook"
    return None


def _ratio(unit, sentence, cited, after):
    """`[[a:b]] the time` needs a ratio of times."""
    ratio = OF_A_RATIO.match(after)
    if ratio and (unit not in RATIOS or cited and unit != "x"):
        said = " ".join(ratio[0].split())
        return (
            f"is {unit and f'in {unit}' or 'no ratio'}, and “{said}” follows, which needs a ratio",
            "name a ratio, or change the words",
        )
    if not ratio or ratio[1] not in QUANTITY or cited or sentence.startswith("The same"):
        return None
    is_other = ratio[1] in ("speed", "time") and _starts(sentence) not in (ratio[1], None)
    if is_other or not QUANTITY[ratio[1]].search(sentence):
        return f"is no ratio of {ratio[1]}", "name one, or change the words"
    return None


def _compared(unit, values, clause, after):
    """`[[a:b]] less`, `saves [[a:b]]`: the value says how much, and is above zero; as a ratio, above 1."""
    word = COMPARED.match(after) or unit != "x" and TAKEN_AWAY.search(clause)
    if not word or not unit:
        return None
    if unit == "x" and min(values) < 1:
        return (
            f"is {format_value(min(values), unit)} in a record, which is not “{word[1]}”",
            "turn the words or the ratio round",
        )
    if min(values) < 0:
        shown = format_value(min(values), unit)
        return f"is {shown} in a record, and “{word[1]}” says that it is more than nothing", "turn the words round"
    return None


def _other_conditions(sentence, around):
    """The model, length, batch in a sentence must be the claim's. Of “at 512 tokens, and [[a:b]] at 8,192” the second has no
    word, so any number of the sentence counts."""
    around = CLAIM.sub("", around)
    said, stated = _conditions(around), {} if sentence.startswith("The same") else _conditions(sentence)
    numbers = set(re.findall(r"\d[\d,]*", around))
    for name in said.keys() & stated.keys():
        if not (said[name] | numbers) & stated[name]:
            here, there = (", ".join(sorted(names)) for names in (said[name], stated[name]))
            return f"is about {name} {there}, and the words beside it are about {here}", "name the claim that is meant"
    return None


def _verdict(unit, sentence, values, clause):
    """`is faster ([[a:b]] the speed)`: on every machine the ratio says so too."""
    verdict, quantity = VERDICT.search(clause), _starts(sentence)
    if not verdict or unit != "x" or DENIED.search(clause) or not quantity:
        return None
    above = quantity == ("time" if verdict[1] == "slower" else "speed")
    value = min(values) if above else max(values)
    if value < 1 if above else value > 1:
        return (
            f"is {format_value(value, unit)} in a record, which is not “{verdict[1]}”",
            "say what every machine shows",
        )
    return None


def _conditions(text):
    """{what is named: its values}, as {"model": {"BERT-large"}, "tokens": {"512"}}."""
    found = {}
    for name in MODEL.findall(text):
        found.setdefault("model", set()).add(name)
    for number, unit, word, value in CONDITION.findall(text):
        found.setdefault(unit or word.split()[0], set()).add(number or value)
    for rows, length in re.findall(r"\b(\d+) x (\d[\d,]*) tokens", text):
        found["tokens"].add(f"{int(rows) * int(length.replace(',', '')):,}")
    return found


def _starts(sentence):
    """Whether a claim is a ratio of speeds or of times, by the first such word of its sentence."""
    speed, time = SPEED.search(sentence), TIME.search(sentence)
    if speed and time:
        return "speed" if speed.start() < time.start() else "time"
    return "speed" if speed else "time" if time else None
