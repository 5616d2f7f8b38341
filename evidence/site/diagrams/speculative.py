"""Speculative decoding of a short text: when the draft and the large model run, and how many tokens each pass of the large one gives."""

from .svg import timeline

TOKENS = 13
DRAFTED = 3  # tokens before each pass of the large model
WRONG = (6, 9)  # tokens, counted from 1, that the draft guesses otherwise than the large model
DRAFT = 0.1  # time of a token of the draft, in passes of the large model: one of a tenth of its weights


def passes():
    """[(first token, last one)] of what each pass of the large model gives: the right guesses, and one token of its own."""
    found, first = [], 1
    while first <= TOKENS:
        drafted = range(first, first + DRAFTED)
        right = next((place for place, token in enumerate(drafted) if token in WRONG), DRAFTED)
        found.append((first, first + right))
        first += right + 1
    return found


def with_draft():
    found, at = [], 0.0
    for first, last in passes():
        found += [(at, DRAFTED * DRAFT, "", f"Draft guesses {DRAFTED} tokens"), (at + DRAFTED * DRAFT, 1, f"{first}-{last}", "Large model")]
        at += 1 + DRAFTED * DRAFT
    return found


def diagram():
    wrong = " and ".join(map(str, WRONG))
    return timeline(
        f"{TOKENS} tokens: the large model alone runs {TOKENS} times, and {len(passes())} times after a draft that is wrong at tokens {wrong}",
        "Two bars over time. Alone, each token is a pass of the large model. With a draft, each pass gives the guesses that were right and one token more, so the same "
        "text is there in less than half of the time.",
        {"Alone": [(token, 1, str(token + 1), "Large model") for token in range(TOKENS)], "With a draft": with_draft()},
        caption="<p>Numbers are the tokens that a pass gives. A pass takes as long for four tokens as for one, where reading the weights decides. A token of this draft takes "
        "a tenth of that.</p>",
    )
