"""A profile is the trace: to the byte and the FLOP, at sizes that it was not made from."""

import json
import subprocess
import sys

import pytest
from same_trace import ROOT, SIZES, same, without_torch

from dryrun.door import web
from dryrun.models import config_file, models
from dryrun.step import profiles
from dryrun.step.profiles import VARIANTS
from dryrun.step.workload import Workload
from dryrun.tables import hardware
from dryrun.tracing import profile_trace

SMALL = "llama3.2-1b"
NAMES = profiles.names()
OF_NAMES = [(name, list(VARIANTS)[index % len(VARIANTS)], SIZES[index % len(SIZES)]) for index, name in enumerate(NAMES)]
ONE_EACH = [(variant, index % 3 == 0, SIZES[index % len(SIZES)]) for index, variant in enumerate(VARIANTS)]
ALL_SIZES = [(variant, compiled, size) for variant in VARIANTS for compiled in (False, True) for size in SIZES]


@pytest.mark.parametrize(("variant", "compiled", "size"), [*ONE_EACH, *(pytest.param(*one, marks=pytest.mark.nightly) for one in ALL_SIZES if one not in ONE_EACH)])
def test_a_profile_says_what_a_fresh_trace_says(variant, compiled, size):
    batch, length = size
    workload = Workload(SMALL, batch, 1 if variant == "decode" else length, compiled=compiled, **VARIANTS[variant])
    same(workload)


@pytest.mark.nightly
@pytest.mark.parametrize("name, variant, size", OF_NAMES, ids=[f"{name}-{variant}" for name, variant, _ in OF_NAMES])
def test_every_model_s_profile_says_so_too(name, variant, size):
    batch, length = size
    positions = profiles.facts(name)["positions"] or length
    workload = Workload(name, batch, 1 if variant == "decode" else min(length, positions), **VARIANTS[variant])
    if profiles.profiled(workload) is None:
        assert variant not in profiles.profile_of(name)["steps"]
    else:
        same(workload)


def test_what_a_profile_does_not_have_is_traced():
    assert profiles.profiled(Workload("mixtral-8x7b", 1, 512, rank=8, targets="all linear")) is None
    assert profiles.profiled(Workload(SMALL, 1, 512, rank=1, targets="all linear")) is None
    assert profiles.profiled(Workload(SMALL, 1, 512, rank=16, targets="q_proj")) is None
    assert profiles.profiled(Workload(SMALL, 1, 8)) is None
    assert profiles.profiled(Workload(SMALL, 1, 512, attention="eager")) is None
    assert profiles.profiled(Workload('{"hidden": 64}', 1, 512)) is None


def test_numbers_that_are_no_polynomials_make_no_profile(monkeypatch):
    taken = profile_trace._taken_apart

    def padded(found):
        """As a kernel that pads its rows to 64 would be."""
        shape, numbers = taken(found)
        return shape, [-(-number // 64) * 64 for number in numbers]

    monkeypatch.setattr(profile_trace, "_taken_apart", padded)
    monkeypatch.setattr(profile_trace, "VARIANTS", {"forward": VARIANTS["forward"]})
    _, missing = profile_trace.make("gpt2")
    assert len(missing) == 1 and "no polynomial of batch and length" in missing[0]


def test_a_model_whose_layers_run_different_operators_has_no_profile(monkeypatch):
    """Every fourth layer of SmolLM3 has no rotary embedding."""
    monkeypatch.setattr(profile_trace, "VARIANTS", {"lora": VARIANTS["lora"]})
    profile, missing = profile_trace.make("smollm3-3b")
    assert not profile["steps"] and "layers differ in what they run" in missing[0]


ASKED = [
    ["train", SMALL, "--gpu", "rtx-4090", "--lora", "--checkpointing", "--rows", "1000", "--price", "2"],
    ["plan", SMALL, "--gpu", "l40s", "--gpus", "4", "--checkpointing"],
    ["infer", SMALL, "--gpu", "t4", "--weights", "int4-128", "--batch", "4"],
]


@pytest.mark.parametrize("asked", ASKED, ids=[asked[0] for asked in ASKED])
def test_the_page_answers_without_torch_what_the_command_answers(asked):
    page = without_torch(f"import json\nfrom dryrun.door import web\nprint(json.dumps(web.ask({asked!r})))")
    done = subprocess.run([sys.executable, "-m", "dryrun", *asked, "--json"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert read(page) == read(done.stdout)


@pytest.mark.parametrize("names", [NAMES[::4], pytest.param(NAMES, marks=pytest.mark.nightly)], ids=["some", "all"])
def test_every_model_that_has_the_steps_is_answered_without_torch_and_transformers(names):
    """Also those whose configuration is that of transformers, and those with a part that is not traced."""
    program = f"NAMES = {names}" + """
from dryrun.step import profiles
from dryrun.door import web
for name in NAMES:
    steps = profiles.profile_of(name)["steps"]
    for verb, needed in (("train --checkpointing --batch 1 --length 256", "full checkpointing"), ("infer --prompt 100 --new 20", "decode")):
        verb, *options = verb.split()
        said = web.ask([verb, name, "--gpu", "h200-sxm", *options]) if needed in steps else {"left_out": ""}
        print(name, verb, said.get("error", "answered"), said.get("left_out"), sep=" | ")
"""
    lines = [line.split(" | ") for line in without_torch(program).splitlines()]
    assert len(lines) == 2 * len(names)
    assert not [line for line in lines if line[2] != "answered"]
    assert {name for name, _, _, left_out in lines if left_out == "vision"} >= {"mistral-small-3.1-24b", "qwen2.5-vl-7b"} & {*names}


def test_parts_that_are_not_traced_are_named_as_transformers_would():
    for name in models._table():
        values = models.values_of(name)
        if "model_type" in values:
            assert models.left_out(name) == config_file.language_model(config_file.configuration(values))[1], name


def read(text):
    """JSON but for the last digits of numbers: sums of compiled kernels go in any order."""
    return json.loads(text, parse_float=lambda number: f"{float(number):.9g}")


def test_the_first_answer_is_the_whole_one_but_for_what_would_help():
    asked = ["train", SMALL, "--gpu", "t4", "--length", "512"]
    first, whole = web.first([*asked, "--largest-batch"]), web.ask([*asked, "--largest-batch"])
    assert whole["changes"] and whole["largest_batch"]
    assert first == {name: value for name, value in whole.items() if name != "largest_batch"} | {"changes": []}
    assert web.first(["train", "llama3-9b", "--gpu", "t4"]) == web.ask(["train", "llama3-9b", "--gpu", "t4"])


def test_a_row_of_the_table_says_what_the_whole_answer_says():
    asked = ASKED[0][:6]
    row, whole = web.row(asked), web.ask(asked)
    assert {name: row[name] for name in ("verdict", "expected_gib", "tokens_per_second")} == {name: whole[name] for name in ("verdict", "expected_gib", "tokens_per_second")}
    asked = ["infer", SMALL, "--gpu", "t4"]
    assert web.row(asked)["tokens_per_second"] == pytest.approx(web.ask(asked)["speed"]["tokens_per_second"])


@pytest.mark.parametrize(
    "asked, said",
    [
        (["train", "llama3-9b", "--gpu", "t4"], "did you mean llama3-8b"),
        (["train", SMALL, "--gpu", "h300"], "did you mean"),
        (["train", SMALL, "--gpu", "t4", "--length", "x"], "give a whole number"),
        (["train", SMALL, "--gpu", "mi300x"], "only NVIDIA's have been judged"),
        (["train", SMALL, "--gpu", "t4", "--length", "9999999"], "positions"),
    ],
)
def test_what_cannot_be_answered_is_one_line(asked, said):
    for found in (web.ask(asked), web.row(asked)):
        assert said in found["error"] and "\n" not in found["error"]


def test_a_model_without_a_profile_is_refused_by_name_where_there_is_no_torch():
    said = without_torch("from dryrun.door import web\nprint(web.ask(['train', 'vit-base', '--gpu', 't4'])['error'])")
    assert said.startswith("vit-base: no profile answers this question")


def test_a_page_offers_models_with_a_profile_and_gpus_with_predicted_times():
    found = web.choices()
    assert {one["name"] for one in found["models"]} == set(NAMES)
    assert all(hardware.accelerator(one["name"]).bytes for one in found["gpus"]) and len(found["gpus"]) > 80
