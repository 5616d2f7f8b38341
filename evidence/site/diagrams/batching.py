"""Six requests in a fixed batch and in continuous batching: which request has how many tokens in which forward pass."""

from .svg import timeline

REQUESTS = {"A": (4, 9), "B": (4, 2), "C": (4, 6), "D": (24, 4), "E": (4, 7), "F": (4, 4)}  # tokens of the prompt, and of the answer
BATCH = 3  # requests at once
BUDGET = 12  # tokens of a forward pass in continuous batching
PROMPT, ANSWER, WASTED = "Reads its prompt", "Writes a token", "Is done, and computed on"


def fixed():
    """[{request: tokens}] of each pass: all prompts of a batch at once, then a token for each until its longest answer ends."""
    names = list(REQUESTS)
    passes = []
    for first in range(0, len(names), BATCH):
        batch = names[first : first + BATCH]
        passes.append({name: REQUESTS[name][0] for name in batch})  # it ends with the first token of each answer
        passes += [dict.fromkeys(batch, 1)] * (max(REQUESTS[name][1] for name in batch) - 1)
    return passes


def continuous():
    """[{request: tokens}] of each pass: a token for each answer that has begun, then of prompts what the budget still takes."""
    prompts = {name: prompt for name, (prompt, _) in REQUESTS.items()}
    answers = {name: answer for name, (_, answer) in REQUESTS.items()}
    passes, inside = [], []
    while answers:
        writing = [name for name in inside if not prompts[name]]
        reading = [name for name in inside if prompts[name]] + [name for name in answers if name not in inside]
        found, room = {}, BUDGET
        for name in [*writing, *reading][:BATCH]:
            tokens = min(room, prompts[name] or 1)
            if tokens:
                found[name], room = tokens, room - tokens
        for name, tokens in found.items():
            prompts[name] = max(0, prompts[name] - tokens)
            if not prompts[name]:
                answers[name] -= 1
        answers = {name: left for name, left in answers.items() if left}
        inside = [name for name in [*inside, *(name for name in found if name not in inside)] if name in answers]
        passes.append(found)
    return passes


def lanes(passes):
    found = {name: [] for name in REQUESTS}
    read, written = dict.fromkeys(REQUESTS, 0), dict.fromkeys(REQUESTS, 0)
    for number, batch in enumerate(passes):
        for name, tokens in batch.items():
            prompt, answer = REQUESTS[name]
            kind = PROMPT if read[name] < prompt else ANSWER if written[name] < answer else WASTED
            found[name].append((number, 1, str(tokens), kind))
            read[name] += tokens if kind == PROMPT else 0
            written[name] += read[name] == prompt
    return found


def steps(passes):
    """[(where the pass ends, what each request does in it)]."""
    blocks, found, read = lanes(passes), [], dict.fromkeys(REQUESTS, 0)
    for number, batch in enumerate(passes):
        kinds = {name: kind for name in batch for start, *_, kind in blocks[name] if start == number}
        reading, writing, done = ([name for name in kinds if kinds[name] == kind] for kind in (PROMPT, ANSWER, WASTED))
        ended = [name for name in (passes[number - 1] if number else {}) if name not in batch]
        whole = [name for name in reading if batch[name] == REQUESTS[name][0]]
        said = [
            f"{_listed(ended)} ended in the pass before." if ended else "",
            f"{_listed(whole)} read{'s its whole prompt' if len(whole) == 1 else ' their whole prompts'}, which gives a first token." if whole else "",
        ]
        for name in reading:
            first, read[name] = read[name] + 1, read[name] + batch[name]
            if name not in whole:
                ends = ", which gives its first token" if read[name] == REQUESTS[name][0] else ""
                said.append(f"{name} reads tokens {first} to {read[name]} of its {REQUESTS[name][0]}{ends}.")
        said.append(f"{_listed(writing)} write{'s a token' if len(writing) == 1 else ' a token each'}." if writing else "")
        said.append(f"{_listed(done)} {'is' if len(done) == 1 else 'are'} done, and computed on." if done else "")
        tokens = sum(batch.values())
        found.append((number + 1, " ".join([f"Pass {number + 1}: {tokens} token{'s' * (tokens > 1)}.", *filter(None, said)])))
    return found


def _listed(names):
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _diagram(title, description, passes):
    longest = len(fixed())
    return timeline(title, description, lanes(passes), axis="forward passes", ends=str(longest), until=longest, steps=steps(passes))


def fixed_diagram():
    return _diagram(
        f"A fixed batch of {BATCH}: {len(fixed())} forward passes. The number in a block: tokens of the request in that pass",
        "Six requests over forward passes. A, B and C are read in the first pass and stay until A, the longest, ends. B and C are done "
        "long before, and are computed on. D, E and F begin only then.",
        fixed(),
    )


def continuous_diagram():
    return _diagram(
        f"Continuous batching, at most {BATCH} requests and {BUDGET} tokens in a pass: {len(continuous())} passes for the same answers",
        "Six requests over forward passes. D enters in the pass after B has ended. Its long prompt is read in chunks, in what the tokens of the "
        "others leave of each pass, so nobody waits for it. E enters when C has ended, and F when D has.",
        continuous(),
    )
