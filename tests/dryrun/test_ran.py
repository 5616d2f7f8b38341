"""A step that a reader ran, and what it says of others."""

import json

import numpy as np
import pytest

from dryrun import Cluster, Job, plan, predict
from dryrun.cost.ran import KINDS, Ran, carried
from dryrun.cost.timing import fitted
from dryrun.door import command, web
from fitting.carried import _judged, pairs_of, share_of

JOB, GPU = Job("llama3.2-1b", checkpointing=True), Cluster("rtx-4090")
ASKED = ["train", "llama3.2-1b", "--gpu", "rtx-4090", "--checkpointing"]


def asked(capsys, *more):
    assert command.main([*ASKED, *more]) == 0
    return capsys.readouterr().out


def test_a_step_that_took_longer_makes_others_of_its_kind_longer_and_their_range_narrower():
    found = predict(JOB, GPU)
    ran = found.measured(found.prediction.tokens_per_second / 1.2)
    plain, then = (predict(Job("qwen3-1.7b", checkpointing=True), GPU, ran=given).prediction for given in (None, ran))
    share = fitted()["carried"]["training, one GPU"]["share"]
    assert then.seconds == pytest.approx(plain.seconds * 1.2**share)
    assert then.tokens_per_second * then.seconds == pytest.approx(plain.tokens_per_second * plain.seconds)
    assert then.high / then.low < plain.high / plain.low and sum(then.parts.values()) == pytest.approx(then.seconds)


def test_a_step_of_another_kind_says_nothing():
    found = predict(JOB, GPU).prediction
    assert carried(found, Ran("many", 1.5)) is found and carried(found, Ran("LoRA", 1.5)) is found and carried(found, None) is found


def test_a_plan_follows_a_step_on_many_gpus():
    cluster = Cluster("h100-sxm5", gpus=8)
    (plain,), (then,) = (plan(JOB, cluster, only="FSDP2", ran=ran) for ran in (None, Ran("many", 1.3)))
    assert then.seconds > 1.2 * plain.seconds


def test_what_the_command_prints_can_be_given_back(capsys):
    said = asked(capsys, "--measured", "8,000", "--tokens", "1e9")
    given = said.split("--ran ")[1].split()[0]
    assert f"{1e9 / 8000 / 3600:.3g}   as measured" in said
    assert f"--ran {given}: as a step" in asked(capsys, "--ran", given)
    data = json.loads(asked(capsys, "--measured", "8000", "--json"))["measured"]
    assert data["ran"] == given and Ran.read(given).times == pytest.approx(data["times"], rel=0.01)


def test_a_kind_whose_steps_say_nothing_of_each_other_is_told(capsys):
    assert "no other answer follows it" in asked(capsys, "--lora", "--measured", "10000")
    assert "--ran many:1.2: that step says nothing sure of this kind" in asked(capsys, "--ran", "many:1.2")


@pytest.mark.parametrize(
    "more, said",
    [
        (["--ran", "lora:2"], "'lora:2': give what --measured printed, such as one:1.13"),
        (["--ran", "one:0"], "'one:0': give what --measured printed"),
        (["--measured", "12"], "more than 10 times off: is it of all GPUs, of this very step, in tokens per second?"),
        (["--objective", "grpo", "--new", "512", "--measured", "2000"], "a step of grpo waits for answers too"),
        (["--machine", "bench.json", "--measured", "2000"], "--machine: its rates are of this machine already: leave --measured out"),
    ],
)
def test_what_cannot_have_been_measured_is_refused_in_one_line(capsys, more, said):
    assert command.main([*ASKED, *more]) == 2
    assert said in capsys.readouterr().err


def test_classes_are_kept_by_sources_that_had_no_part_in_what_judges_them():
    told = {one["class"]: one for one in fitted()["carried_judged"]}
    assert set(fitted()["carried"]) == {klass for klass, one in told.items() if one["kept"]} == set(KINDS.values())
    for one in told.values():
        assert not one["kept"] or one["median_given"] < one["median"] and one["worst_given"] <= one["worst"] and one["sources"] >= 4


def test_the_share_of_a_source_is_chosen_by_the_others():
    pairs = {"a": np.array([[0.2, 0.2, 1.0]]), "b": np.array([[0.1, 0.1, 1.0]]), "odd": np.array([[0.2, -0.2, 1.0]])}
    assert share_of(pairs, "odd") == 1 and share_of({"odd": pairs["odd"], "a": pairs["a"]}, "a") == 0


def test_one_machine_is_one_group_and_each_row_weighs_the_same():
    row = {"source": "a", "gpu": "t4", "framework": "torch", "host": None}
    rows = [row, row, row, {**row, "gpu": "l4"}]
    (pairs,) = pairs_of(rows, [0.1, 0.2, 0.3, 0.9], ["forward"] * 4)["forward"].values()
    assert len(pairs) == 6 and pairs[:, 2].sum() == pytest.approx(3)


def test_errors_that_a_machine_shares_are_left_out_where_four_sources_show_it():
    generator = np.random.default_rng(0)
    pairs = {}
    for source, shared in zip("abcde", (0.3, -0.2, 0.25, -0.3, 0.2), strict=True):
        own = shared + generator.normal(0, 0.02, 8)
        pairs[source] = np.array([(a, b, 1 / 7) for i, a in enumerate(own) for j, b in enumerate(own) if i != j])
    one = _judged("forward", pairs)
    assert one["kept"] and one["share"] > 0.8 and one["median_given"] < one["median"] / 3
    assert not _judged("forward", {source: pairs[source] for source in "abc"})["kept"]


def test_a_row_of_the_page_s_table_follows_it_too():
    plain, then = (web.row([*ASKED, *more])["tokens_per_second"] for more in ([], ["--ran", "one:1.2"]))
    assert then < 0.9 * plain
