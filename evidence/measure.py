"""Times training steps and reads their peak memory, fairly.

On a CPU: one thread and CPU time, so that a busy machine changes the figure little. On an accelerator: wall time around
a synchronised step. Variants that are compared run in turn (A B C, A B C, ...), and the fastest repeat counts: what
disturbs a run only ever makes it slower.
"""

import math
import os
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


@dataclass(frozen=True)
class Peak:
    """Peak memory of a step on the accelerator, in bytes."""

    allocated: int  # by tensors
    reserved: int  # by PyTorch's allocator: tensors and what it holds back for the next ones


def one_thread():
    """Makes PyTorch use one CPU thread from here on, so that CPU time is comparable between runs."""
    torch.set_num_threads(1)


def interleaved(steps, repeats=5, warmup=1):
    """Times each of `steps` ({name: function without arguments}); returns {name: Timing}.

    EVIDENCE_SECONDS in the environment: no third repeat, nor a later one, once they have taken that long together, the
    warm-up included, which then counts as one of them; no second one behind a warm-up once the two have taken twice as long;
    and no second call of a step that takes longer by itself. The tests set it, which ask whether a bound holds; a record is
    made by all repeats, behind the warm-up.
    """
    most = float(os.environ.get("EVIDENCE_SECONDS", "inf"))
    slow = set()

    def turn():
        seconds = {name: _time(step) for name, step in steps.items() if name not in slow}
        slow.update(name for name, taken in seconds.items() if taken > most)
        return seconds

    warm_up = [turn() for _ in range(warmup)]
    measured = []
    while len(measured) < repeats:
        so_far = sum(sum(seconds.values()) for seconds in warm_up + measured)
        if len(measured) >= 2 and so_far >= most or len(warm_up + measured) >= 2 and so_far >= 2 * most:
            break
        measured.append(turn())
    counted = measured if most == math.inf else warm_up + measured
    return {name: Timing(tuple(seconds[name] for seconds in counted if name in seconds)) for name in steps}


def rounds(count, least=2):
    """How often to run what `interleaved` does not time, a training run per seed or the steps of one: `count` times; `least`
    times where EVIDENCE_SECONDS is in the environment, for the same reason."""
    return least if "EVIDENCE_SECONDS" in os.environ else count


def peak_memory(step):
    """Runs `step` once and returns its `Peak`; None on a machine without an accelerator that keeps count."""
    if not torch.cuda.is_available():
        step()
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return Peak(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


def _time(step):
    if not torch.cuda.is_available():
        started = time.process_time()
        step()
        return time.process_time() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - started
