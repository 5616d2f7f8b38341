"""What memory over the steps of a run looks like, by its cause. PyTorch's allocator, replayed by dryrun, says what is reserved."""

from dryrun.step.allocator import MIB, Allocator

from .svg import figure

STEPS = 12
WEIGHTS, STEP = 600 * MIB, 400 * MIB  # what stays, and the activations of a step
KEPT = 60 * MIB  # of each step, by a reference that nobody lets go
LAYERS = 8
SHORT, LONG = 0.4, 1.0  # lengths of the batches, against the longest
ALLOCATED, RESERVED = "Allocated", "Reserved"


def _run(lengths, kept=0):
    """[(allocated at the peak of the step, reserved after it)] in bytes."""
    allocator, found = Allocator(), []
    allocator.take(WEIGHTS)
    for length in lengths:
        blocks = [allocator.take(int(STEP * length / LAYERS)) for _ in range(LAYERS)]
        peak = allocator.allocated
        for block in blocks:
            allocator.give(block)
        if kept:
            allocator.take(kept)
        found.append((peak, allocator.reserved))
    return found


def runs():
    """{name: [(allocated, reserved) of each step]}"""
    return {
        "Steady: as it should be": _run([LONG] * STEPS),
        "Grows: something is kept": _run([LONG] * STEPS, KEPT),
        "Jumps: one long batch": _run([SHORT if step != STEPS * 2 // 3 else LONG for step in range(STEPS)]),
        "In pieces: many lengths": _run([SHORT + (LONG - SHORT) * (5 * step % STEPS) / (STEPS - 1) for step in range(STEPS)]),
    }


def diagram():
    drawn = runs()
    most = max(reserved for steps in drawn.values() for _, reserved in steps)

    def draw(drawing):
        columns, gap, tall = (2, 14, 90) if drawing.narrow else (4, 22, 110)
        width = (drawing.width - 2 - gap * (columns - 1)) / columns
        for number, (name, steps) in enumerate(drawn.items()):
            left, top = 1 + number % columns * (width + gap), number // columns * (tall + 56)
            title, _, cause = name.partition(": ")
            drawing.text(left, top + 8, title, "start")
            drawing.text(left, top + 23, cause, "start quiet")
            step = width / len(steps)
            for at, (allocated, reserved) in enumerate(steps):
                for kind, size in ((RESERVED, reserved), (ALLOCATED, allocated)):
                    high = size / most * tall
                    drawing.box(left + at * step, top + 36 + tall - high, step, high, "", kind)

    rows = "".join(
        f"<tr><th>{name}</th>" + "".join(f"<td>{size / 2**30:.1f} GiB</td>" for size in (*steps[0], *steps[-1])) + "</tr>" for name, steps in drawn.items()
    )
    return figure(
        f"Memory over {STEPS} steps, by its cause",
        "Four small bar charts over the steps of a run. Steady bars; bars that grow by the same amount with each step; bars with one jump, after which the reserved memory stays; "
        "and reserved memory that grows faster than what is allocated.",
        draw,
        '<div class="scroll"><table aria-label="Memory"><thead><tr><th>Run</th><th>allocated, first step</th><th>reserved</th><th>allocated, last step</th><th>reserved</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
        (ALLOCATED, RESERVED),
    )

