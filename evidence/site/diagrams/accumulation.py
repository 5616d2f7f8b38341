"""Gradient accumulation: several micro-batches, one step of the optimizer."""

from .svg import timeline

MICRO_BATCHES = 4
FORWARD, BACKWARD, OPTIMIZER = 1, 2, 0.7


def lanes():
    """What runs, and what is held: activations of one micro-batch at a time, gradients until the optimizer's step."""
    runs, activations, at = [], [], 0
    for number in range(1, MICRO_BATCHES + 1):
        runs += [(at, FORWARD, str(number), "Forward"), (at + FORWARD, BACKWARD, str(number), "Backward")]
        activations.append((at, FORWARD + BACKWARD, str(number), "Activations"))
        at += FORWARD + BACKWARD
    runs.append((at, OPTIMIZER, "", "Optimizer step"))
    gradients = [(FORWARD, at + OPTIMIZER - FORWARD, "sum", "Gradients")]
    return {"Runs": runs, "Activations": activations, "Gradients": gradients}


def diagram():
    return timeline(
        f"Accumulation over {MICRO_BATCHES} micro-batches: activations of one, gradients of all, one step",
        "Timeline. Four times a forward and a backward pass, then one step of the optimizer. Activations are there for one "
        "micro-batch at a time. The gradients stay from the first backward pass to the optimizer's step.",
        lanes(),
    )
