"""Times training steps, fairly.

On a CPU: one thread and CPU time, so that a busy machine changes the figure little. On an accelerator: wall time around
a synchronized step. Variants that are compared run in turn (A B C, A B C, ...), and the fastest repeat counts: what
disturbs a run only ever makes it slower.
"""

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds per call, of every repeat after the warm-up."""

    seconds: tuple

    @property
    def best(self):
        return min(self.seconds)

    @property
    def spread(self):
        """For a record: {"min", "max"} in seconds and the number of repeats."""
        return {"min": self.best, "max": max(self.seconds), "repeats": len(self.seconds)}


def one_thread():
    """Makes PyTorch use one CPU thread from here on, so that CPU time is comparable between runs."""
    torch.set_num_threads(1)


def interleaved(steps, repeats=5, warmup=1, clock=None):
    """Times each of `steps` ({name: function without arguments}) `repeats` times, in turn; returns {name: Timing}.

    warmup: rounds that run before and do not count. clock: what reads the seconds. By default CPU time, for one thread;
    pass time.perf_counter where all cores work, or where waiting is the question. On an accelerator wall time, always.
    """
    for _ in range(warmup):
        _round(steps, clock)
    measured = [_round(steps, clock) for _ in range(repeats)]
    return {name: Timing(tuple(seconds[name] for seconds in measured)) for name in steps}


def _round(steps, clock):
    return {name: _time(step, clock) for name, step in steps.items()}


def _time(step, clock):
    if not torch.cuda.is_available():
        clock = clock or time.process_time
        started = clock()
        step()
        return clock() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started
