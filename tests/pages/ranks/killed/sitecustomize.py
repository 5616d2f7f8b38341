"""Kills a rank as a lost node does, in the middle of an update: after $KILL_IN - 1 steps of an optimizer, on rank $KILL_RANK."""

import os
import signal
import sys

if "KILL_IN" in os.environ and os.environ.get("RANK", "0") == os.environ["KILL_RANK"]:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    steps = []

    def die(optimizer, args, kwargs):
        steps.append(1)
        if len(steps) == int(os.environ["KILL_IN"]):
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(die)
