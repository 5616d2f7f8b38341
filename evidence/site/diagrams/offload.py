"""Offload to the host over time: activations on the stream that computes or on one of their own, and an optimizer on the host."""

from .svg import timeline

LAYERS = 4
FORWARD, BACKWARD, COPY = 2, 5, 1  # lengths, for the picture: a backward pass computes its layer again first
FORWARDS, BACKWARDS, TO_HOST, TO_GPU, WAITS, UPDATES = "Forward", "Backward", "To the host", "To the GPU", "Waits", "Update on the CPU"
GRADIENTS, UPDATE, WEIGHTS = 2, 4, 2


def one_stream():
    """Blocks of a GPU that copies each layer's input on the stream that computes: nothing overlaps."""
    found, now = [], 0

    def add(length, layer, kind):
        nonlocal now
        found.append((now, length, str(layer), kind))
        now += length

    for layer in range(LAYERS):
        add(COPY, layer, TO_HOST)
        add(FORWARD, layer, FORWARDS)
    for layer in reversed(range(LAYERS)):
        add(COPY, layer, TO_GPU)
        add(BACKWARD, layer, BACKWARDS)
    return found


def two_streams():
    """(blocks of the GPU, blocks of the link): an input goes while its layer computes, and comes back during the layer before."""
    gpu, link, now, free = [], [], 0, 0
    for layer in range(LAYERS):
        gpu.append((now, FORWARD, str(layer), FORWARDS))
        start = max(now, free)
        link.append((start, COPY, str(layer), TO_HOST))
        now, free = now + FORWARD, start + COPY
    asked = now
    for layer in reversed(range(LAYERS)):
        start = max(asked, free)
        link.append((start, COPY, str(layer), TO_GPU))
        free = start + COPY
        if free > now:
            gpu.append((now, free - now, "", WAITS))
            now = free
        gpu.append((now, BACKWARD, str(layer), BACKWARDS))
        asked, now = now, now + BACKWARD
    return gpu, link


def end(blocks):
    return max(start + length for start, length, *_ in blocks)


def activations_diagram():
    gpu, link = two_streams()
    return timeline(
        f"Inputs of {LAYERS} layers wait on the host: copies on the stream that computes, and on a stream of their own. A forward pass takes {FORWARD} here, "
        f"a backward pass {BACKWARD}, a copy {COPY}",
        "Timeline. On one stream the GPU copies before each layer, and computes nothing meanwhile. With a second stream the link copies while the GPU computes, and "
        "the GPU waits once, for the first input that it needs back.",
        {"GPU, one stream": one_stream(), "GPU, two streams": gpu, "its link": link},
        until=end(one_stream()),
    )


def step(micro_batches):
    """{lane: blocks} of one optimizer step of DeepSpeed: in each backward pass the gradients leave, after the sum so far has come back; at the end the
    host updates and sends the weights."""
    gpu, link, now = [], [], 0
    for number in range(micro_batches):
        gpu += [(now, FORWARD, str(number), FORWARDS), (now + FORWARD, BACKWARD, str(number), BACKWARDS)]
        now += FORWARD + BACKWARD
        if number:
            link.append((now - 2 * GRADIENTS, GRADIENTS, str(number - 1), TO_GPU))
        link.append((now - GRADIENTS, GRADIENTS, str(number), TO_HOST))
    gpu.append((now, UPDATE + WEIGHTS, "", WAITS))
    link.append((now + UPDATE, WEIGHTS, "", TO_GPU))
    return {"GPU": gpu, "Link": link, "CPU": [(now, UPDATE, "", UPDATES)]}


def optimizer_diagram():
    one, four = step(1), step(4)
    until = end(four["GPU"])
    return timeline(
        f"An optimizer on the host: after one micro-batch or four, the GPU waits once for the update and the new weights. An update takes {UPDATE} here, "
        f"a micro-batch {FORWARD + BACKWARD}, weights or gradients on the link {WEIGHTS}",
        "Timeline. Gradients go to the host during the backward pass; from the second micro-batch on the sum so far comes back first. After the last one the CPU updates the weights and sends them back, and the GPU waits for both. "
        "With four micro-batches it waits as long, after four times the work.",
        {f"{name}, {count}": blocks for count, lanes in (("1", one), ("4", four)) for name, blocks in lanes.items()},
        until=until,
    )
