"""How much each token counts in a step of two micro-batches: divided by the tokens of all, and as a mean of their means."""

from .svg import timeline

TOKENS = (6, 2)  # that count in the loss, of each micro-batch
WHOLE = 48  # of the axis: a multiple of what the weights are divided by


def by_all():
    """The weight of each token of each micro-batch, where all are divided by the tokens of the step. They sum to 1."""
    return [[1 / sum(TOKENS)] * tokens for tokens in TOKENS]


def by_means():
    """The same for the mean over micro-batches of the mean over their tokens."""
    return [[1 / tokens / len(TOKENS)] * tokens for tokens in TOKENS]


def blocks(weights):
    found, at, token = [], 0.0, 0
    for number, batch in enumerate(weights, 1):
        for weight in batch:
            token += 1
            found.append((at, weight * WHOLE, str(token), f"Token of micro-batch {number}"))
            at += weight * WHOLE
    return found


def diagram():
    few, many = by_means()[1][0], by_means()[0][0]
    return timeline(
        f"A step of {TOKENS[0]} and {TOKENS[1]} tokens: in a mean of means, one token of the short micro-batch counts as {few / many:.0f} of the long one",
        "Two bars of the same length, a block for each token. In the first all blocks are equal. In the second the blocks of the long micro-batch are narrow, and "
        "those of the short one are wide: each micro-batch has half of the bar.",
        {"num_items_in_batch": blocks(by_all()), "Mean of means": blocks(by_means())},
        axis="share of the gradient",
    )
