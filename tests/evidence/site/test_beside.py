"""Words beside a claim that are not the claim's are named; words that are its own pass."""

from pathlib import Path

import pytest

from evidence.records import Record
from evidence.site import beside

PEAK = {"sentence": "Peak memory of a step of BERT-large, 512 tokens", "unit": "GiB", "value": 12.5}
SPEED = {"sentence": "Speed of a step with bf16 against fp32, batch 8", "unit": "x", "value": 2.3}
SLOWER = {"sentence": "Speed of a step with SGD against AdamW", "unit": "x", "value": 0.8}
TIME = {"sentence": "Time of a step with checkpointing against one without", "unit": "x", "value": 1.3}
SAVING = {"sentence": "What checkpointing saves of the peak, 8B Llama", "unit": "%", "value": 40}
GROWTH = {"sentence": "What fp8 saves of the memory of a step", "unit": "%", "value": -3}
LOSS = {"sentence": "Difference of the loss of two runs", "unit": "", "value": 0.01}
CLAIMS = {
    "peak": PEAK,
    "speed": SPEED,
    "slower": SLOWER,
    "time": TIME,
    "saving": SAVING,
    "growth": GROWTH,
    "loss": LOSS,
}


def problems_of(text, claims=CLAIMS, heading="", gpu=None):
    records = [Record(Path("results/tiny/cpu.json"), {"claims": claims, "machine": {"name": "cpu"}})]
    if gpu:
        records.append(
            Record(Path("results/tiny/gpu.json"), {"claims": gpu, "machine": {"name": "gpu", "gpu": "H100"}})
        )
    return [str(problem) for problem in beside.check("docs/a.md", 1, text, {"tiny": records}, heading)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("It takes [[tiny:peak]] GiB.", "[[tiny:peak]] shows its unit, GiB, and “GiB” is typed after it"),
        ("It takes [[tiny:peak]] MB.", "[[tiny:peak]] shows its unit, GiB, and “MB” is typed after it"),
        ("It saves [[tiny:saving]] percent.", "[[tiny:saving]] shows its unit, %, and “percent” is typed after it"),
        ("It is [[tiny:speed]] times faster.", "[[tiny:speed]] shows its unit, x, and “times” is typed after it"),
        ("They differ by [[tiny:loss]] nats.", "[[tiny:loss]] has no unit, and “nats” is typed after it"),
        ("It runs at [[tiny:peak]] the speed.", "[[tiny:peak]] is in GiB, and “the speed” follows, which needs a ratio"),
        ("It takes [[tiny:speed]] the time.", "[[tiny:speed]] is no ratio of time"),
        ("It runs at [[tiny:time]] the speed.", "[[tiny:time]] is no ratio of speed"),
        ("It needs [[tiny:speed]] the memory.", "[[tiny:speed]] is no ratio of memory"),
        ("It takes [[tiny:growth]] less.", "[[tiny:growth]] is -3% in a record, and “less” says that it is more than nothing"),
        ("It saves [[tiny:growth]].", "[[tiny:growth]] is -3% in a record, and “saves” says that it is more than nothing"),
        ("It is [[tiny:slower]] faster.", "[[tiny:slower]] is 0.8x in a record, which is not “faster”"),
        ("SGD is a little faster ([[tiny:slower]]).", "[[tiny:slower]] is 0.8x in a record, which is not “faster”"),
        ("bf16 is slower: [[tiny:speed]] the speed.", "[[tiny:speed]] is 2.3x in a record, which is not “slower”"),
        ("A step of BERT-base takes [[tiny:peak]].", "[[tiny:peak]] is about model BERT-large, and the words beside it are about BERT-base"),
        ("At 2,048 tokens it takes [[tiny:peak]].", "[[tiny:peak]] is about tokens 512, and the words beside it are about 2,048"),
        ("The gain at batch 32 is [[tiny:speed]].", "[[tiny:speed]] is about batch 8, and the words beside it are about 32"),
    ],
)  # fmt: skip
def test_words_that_are_not_the_claims_are_named(text, what):
    (problem,) = problems_of(text)
    assert problem.startswith(f"docs/a.md:1: {what}")
    assert ". Fix: " in problem


@pytest.mark.parametrize(
    "text",
    [
        "A step takes [[tiny:peak]] with 512 tokens, and [[tiny:peak]] of it at most.",
        "bf16 runs at [[tiny:speed]] the speed of fp32.",
        "A step takes [[tiny:time]] the time, or **[[tiny:time]]** as long.",
        "It saves [[tiny:saving]]; the peak is [[tiny:saving]] lower.",
        "It takes [[tiny:growth]] of the peak off.",
        "SGD is not faster ([[tiny:slower]]).",
        "SGD is slower ([[tiny:slower]] the speed).",
        "checkpointing is slower: [[tiny:time]] the time.",
        "The two losses differ by [[tiny:loss]].",
        "At 512 tokens BERT-large takes [[tiny:peak]], at 2,048 more.",
        "`[[tiny:peak]] GiB` is how not to write it.",
        "[[tiny:none]] GiB is unknown, which is said elsewhere.",
    ],
)
def test_the_claims_own_words_pass(text):
    assert problems_of(text) == []


def test_a_direction_must_hold_on_every_machine_that_a_reader_can_choose():
    gpu = {"speed": SPEED | {"value": 0.9}}
    (problem,) = problems_of("bf16 is faster: [[tiny:speed]] the speed.", gpu=gpu)
    assert "[[tiny:speed]] is 0.9x in a record, which is not “faster”" in problem
    assert problems_of("On a CPU bf16 is faster: [[tiny:speed@cpu]] the speed.", gpu=gpu) == []


def test_a_problem_is_named_at_the_line_of_its_claim():
    (problem,) = problems_of("First.\nThen it takes\n[[tiny:peak]] GiB.")
    assert problem.startswith("docs/a.md:3: ")


MANY = {
    name: {"sentence": f"Peak memory of {name}", "unit": "GiB", "value": 1}
    for name in ["adapters", "batching", "caching"]
}
MANY |= {
    name: {"sentence": f"Speed of {name}", "unit": "x", "value": 2}
    for name in ["drafts", "fusing", "halving", "ignoring", "joining"]
}


def test_a_claim_that_shares_no_word_with_its_text_is_another_one():
    (problem,) = problems_of("Draft models help: [[tiny:caching]].", MANY)
    assert "[[tiny:caching]] shares no word with the text around it: the claim is “Peak memory of caching”" in problem


def test_the_words_may_stand_in_a_heading_or_in_another_form():
    assert problems_of("It takes [[tiny:caching]].", MANY, heading="Caches") == []
    assert problems_of("When you cache, it takes [[tiny:caching]].", MANY) == []
