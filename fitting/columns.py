"""Many runs at once, as columns of numbers, so that constants can be tried quickly. The formulas are those of one prediction."""

import numpy as np

from dryrun.cost import decoding, roofline
from dryrun.cost.runs import PARTS, Facts, klass, parts, run_of, waits


class Runs:
    """Runs, each with a row of facts; and the rows of all their kernels, with `starts` where each run begins."""

    def __init__(self):
        self.runs = []
        self._columns = None

    def add(self, what, workload, setting):
        self.runs.append(run_of(what, workload, setting))
        self._columns = None

    def only(self, indices):
        """These runs alone."""
        found = Runs()
        found.runs = [self.runs[index] for index in indices]
        return found

    def parts(self, constants):
        """{what binds: seconds of each run}."""
        if self._columns is None:
            self._columns = (
                Facts(*np.array([run.facts for run in self.runs], dtype=float).T),
                Kernels([run.step for run in self.runs]),
                Kernels([run.update for run in self.runs]),
                decoding.Token(*np.array([run.token for run in self.runs], dtype=float).T),
            )
        facts, steps, updates, tokens = self._columns
        return parts(facts, steps.seconds(constants), updates.seconds(constants), tokens, constants)

    def seconds(self, constants):
        """Seconds of each run."""
        found = self.parts(constants)
        return sum(found[name] for name in PARTS)

    def classes(self, constants):
        """The class of each run; a step that waits for the CPU, or for many small kernels, is launch-bound."""
        return [klass(run, bool(bound)) for run, bound in zip(self.runs, waits(self.parts(constants)), strict=True)]


class Kernels:
    """The rows of many steps."""

    def __init__(self, steps):
        self.starts = np.cumsum([0, *(len(step) for step in steps[:-1])])
        self.rows = roofline.Row(*np.array([row for step in steps for row in step], dtype=float).T)

    def seconds(self, constants):
        """Seconds of each step: bound by compute, by bandwidth, by launches."""
        return tuple(np.add.reduceat(part, self.starts) for part in roofline.row_seconds(self.rows, constants))
