"""A profile beside a fresh trace, and programs on a machine without torch."""

import subprocess
import sys
from pathlib import Path

from dryrun.step import profiles
from dryrun.step.workload import of_peft
from dryrun.tracing import step_trace

ROOT = Path(__file__).parents[1]
SIZES = [(1, 777), (1, 8192), (2, 64), (4, 2048)]  # between and beyond those of profile_trace


def same(workload):
    profiled, traced = profiles.profiled(workload), step_trace.run(workload)
    if not of_peft(workload):  # its profile has memory alone
        assert profiled.kernels.counts == traced.kernels.counts
        assert list(profiled.kernels.counts) == list(traced.kernels.counts)  # sums of floats depend on the order
        assert profiled.kernels.dispatched == traced.kernels.dispatched
        assert profiled.memory is None or profiled.memory.flops == traced.memory.flops
    if traced.memory:
        if profiled.memory.parts != traced.memory.parts:  # a trace of few layers misses peaks that are not the highest of the step
            config = step_trace.config_of(workload.model, workload.length)
            assert profiled.memory.parts == step_trace.recorded(workload, *config, traced.layers).traced.memory.parts
        assert profiled.memory.peak == traced.memory.peak
    left_out = {"kernels", "memory"} | ({"kept"} if of_peft(workload) else set())
    assert {name: value for name, value in vars(profiled).items() if name not in left_out} == {
        name: value for name, value in vars(traced).items() if name not in left_out
    }


BARE = """
import importlib.metadata, importlib.util, sys
for name in ("torch", "transformers", "numpy"):
    sys.modules[name] = None
def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = missing  # as in a browser
"""


def without_torch(program):
    done = subprocess.run([sys.executable, "-c", BARE + program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout
