"""Each program that trains or generates, watched while a reader's run of it goes on: does it do what it says?

watched.py says what each must show; watcher/sitecustomize.py describes what is seen. tests/pages/ reads the output of the same runs.
"""

import argparse
import runpy

import pytest
from programs import SNIPPETS, run
from test_first_programs import OF_GUIDES
from watched import ALL, GENERATE, RATES, TRAIN

CLOSE = 0.15  # of a gradient against the slope of the loss: what curvature, and rounding to bf16, leave


def seen(shows, event):
    """[the events of each process of the program]; a launcher imports torch too, and is left out."""
    start = {"start": run(shows.after).folder} if shows.after else {}
    made = run(shows.by or shows.name, *shows.arguments, timeout=1800, **start, **shows.how)
    return [each for each in made.seen if each["event"] == event and each["program"] == shows.program]


def named(programs):
    """The core watches those that it runs anyway."""
    return pytest.mark.parametrize(
        "shows", [pytest.param(each, marks=[] if each.name in OF_GUIDES else pytest.mark.nightly, id=each.name) for each in programs]
    )


@named([each for each in ALL if each.rate])
def test_it_learns_at_a_rate_of_its_kind(shows):
    low, high = RATES[shows.rate]
    assert low <= max(rate for step in seen(shows, "step") for rate in step["rates"]) <= high


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name, option, kind",
    [("recipes/finetune_14b.py", "rate", "pretrained"), ("post_training/grpo.py", "learning_rate", "rewards")],
)
def test_the_rate_that_it_has_when_no_option_gives_one_is_of_its_kind(name, option, kind, monkeypatch):
    class Asked(Exception):
        pass

    def stop(parser):
        raise Asked(parser.parse_known_args([])[0])

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(Asked) as asked:
        runpy.run_path(str(SNIPPETS / name))
    low, high = RATES[kind]
    assert low <= getattr(asked.value.args[0], option) <= high


@named([each for each in TRAIN if each.clips])
def test_no_step_takes_a_gradient_longer_than_the_limit(shows):
    steps = seen(shows, "step")
    assert steps
    for step in steps:
        assert step["clip"], "nothing was clipped before a step"
        assert step["clip"]["most"] == 1
        assert step["norm"] <= 1.01  # in bf16 the length is rounded


@named([each for each in TRAIN if each.samples and not each.compiled])
def test_the_gradient_is_that_of_the_mean_over_all_samples_of_the_step_and_all_ranks(shows):
    batches = seen(shows, "batch")
    assert batches
    for batch in batches:
        assert "error" not in batch, batch
        assert batch["gradient"] == pytest.approx(batch["slope"], rel=CLOSE)


def test_two_ranks_step_by_the_gradient_of_one():
    """AdamW hides a gradient of twice the length: the losses stay the same."""
    one, two = (
        run("launching/train.py", "--steps", 5, processes=processes, torchrun=True).seen for processes in (1, 2)
    )
    norms = [[each["norm"] for each in seen if each["event"] == "step"] for seen in (one, two)]
    assert len(norms[0]) == 5
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-3)  # the lines of rank 0, then those of rank 1


@named([each for each in TRAIN if each.samples and each.falls and not each.compiled])
def test_its_first_step_lowers_the_loss_of_the_same_samples(shows):
    for batch in seen(shows, "batch"):
        assert batch["after"] < batch["before"]


@named([each for each in ALL if not each.compiled])
def test_every_graph_that_it_builds_has_a_backward_pass(shows):
    ends = seen(shows, "end")
    assert ends and [end["unused"] for end in ends] == [shows.wastes] * len(ends)
    assert all(end["graphs"] > 0 for end in ends) == bool(shows.rate)


@named([each for each in TRAIN if not each.compiled])
def test_the_backward_pass_computes_the_checkpointed_layers_again_and_no_other(shows):
    for end in seen(shows, "end"):
        assert end["again"] == shows.recomputes * end["layers"]


@named(GENERATE)
def test_every_token_is_the_first_choice_of_a_plain_forward_pass_over_the_whole_text(shows):
    texts = seen(shows, "greedy")
    assert texts
    for text in texts:
        assert "error" not in text, text
        assert text["agree"] >= shows.greedy * text["tokens"] > 0
