"""One update of GRPO on one GPU: how many answers are written at once, and what each micro-batch learns from."""

from .svg import timeline

PER_DEVICE, ACCUMULATION, GENERATIONS = 4, 4, 4
WRITES, LEARNS, UPDATES = "Writes answers", "Learns from answers", "Updates the weights"
WRITING, LEARNING = 5, 1  # lengths, for the picture: sixteen answers take about as long to write as four
WAYS = {"At once": ACCUMULATION, "In parts": 1}  # steps_per_generation; the default is the accumulation


def calls(steps_per_generation):
    """[(what, answers)] of an update, in order."""
    found = []
    for step in range(ACCUMULATION):
        if step % steps_per_generation == 0:
            found.append((WRITES, PER_DEVICE * steps_per_generation))
        found.append((LEARNS, PER_DEVICE))
    return found + [(UPDATES, 0)]


def lane(steps_per_generation):
    found, at = [], 0
    for what, answers in calls(steps_per_generation):
        length = WRITING if what == WRITES else LEARNING
        found.append((at, length, str(answers or ""), what))
        at += length
    return found


def diagram():
    answers = PER_DEVICE * ACCUMULATION
    return timeline(
        f"An update of {answers} answers to {answers // GENERATIONS} prompts: all written at once, or in parts by steps_per_generation=1",
        f"Two timelines. In the first, {answers} answers are written at once, then learned from in {ACCUMULATION} micro-batches, then the weights are updated. In the second, "
        f"{PER_DEVICE} answers are written before each micro-batch, so that an update takes longer and a quarter of the answers is in memory.",
        {name: lane(steps) for name, steps in WAYS.items()},
    )
