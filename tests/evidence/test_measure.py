"""Variants that are compared run in turn, after a warm-up, and the fastest repeat counts."""

import time

import pytest
import torch

from evidence import measure


def test_variants_run_in_turn_after_a_warm_up_that_does_not_count(monkeypatch):
    clock, calls = iter(range(1000)), []
    monkeypatch.setattr(measure, "_time", lambda step, _: step() or next(clock))
    timings = measure.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3, warmup=2)
    assert calls == ["a", "b"] * 5
    assert timings == {"a": measure.Timing((4, 6, 8)), "b": measure.Timing((5, 7, 9))}


def test_the_clock_is_what_the_caller_names(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ticks = iter([0.0, 2.0, 10.0, 13.0])
    assert measure.interleaved({"a": lambda: None}, repeats=2, warmup=0, clock=lambda: next(ticks))["a"].seconds == (
        2.0,
        3.0,
    )


def test_the_fastest_repeat_counts_and_the_spread_tells_the_slowest():
    timing = measure.Timing((3.0, 1.0, 2.0))
    assert timing.best == 1.0
    assert timing.spread == {"min": 1.0, "max": 3.0, "repeats": 3}


@pytest.mark.skipif(torch.cuda.is_available(), reason="2026-11-20: on a GPU, wall time counts")
def test_on_a_cpu_waiting_does_not_count():
    assert 0 <= measure._time(lambda: time.sleep(0.2), None) < 0.1


def test_on_an_accelerator_a_step_is_timed_between_synchronizations(monkeypatch):
    calls = []
    for name, value in {"is_available": True, "synchronize": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda name=name, value=value: (calls.append(name), value)[1])
    assert measure._time(lambda: calls.append("step"), None) >= 0
    assert [call for call in calls if call != "is_available"] == ["synchronize", "step", "synchronize"]


def test_one_thread_is_one():
    before = torch.get_num_threads()
    try:
        measure.one_thread()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
