"""A step of FSDP2: when each layer's weights arrive, are used and leave again.

Three streams work in parallel, each in its own order. `gathers` holds FSDP2's rule: an all-gather waits until the computation
of an earlier layer has begun. The test reads the rule off a real step. The root group, embedding and output layer, is
gathered once.
"""

from .svg import timeline

LAYERS = (1, 2, 3, 4)
GATHER, FORWARD, BACKWARD, SCATTER = 1, 1.5, 3, 1  # lengths, for the picture: the network is faster than a layer
COMPUTE, GATHERS, SCATTERS = "Compute", "All-gather", "Reduce-scatter"
ARRIVES, WHOLE, LEAVES = "Weights arrive", "Weights whole", "Gradient leaves"


def order():
    """[(layer, way)] that the GPU computes: the root's embedding is first, its output layer in the middle."""
    forward = ["embedding", *LAYERS, "output"]
    return [(layer, "Forward") for layer in forward] + [(layer, "Backward") for layer in reversed(forward)]


def gathers():
    """{(layer, way): what must have begun, or None} in the order in which FSDP2 asks for them."""
    found = {("embedding", "Forward"): None}
    for layer in LAYERS:  # one is used, the next is there, the one after it comes
        two_before = {1: None, 2: ("embedding", "Forward")}
        found[layer, "Forward"] = two_before.get(layer, (layer - 2, "Forward"))
    for layer in reversed(LAYERS):
        last = layer == LAYERS[-1]
        found[layer, "Backward"] = (layer, "Forward") if last else (layer + 1, "Backward")
    return found


def lanes():
    rule, begun, gathered, computed, scattered = gathers(), {}, 0, 0, 0
    streams = {COMPUTE: [], GATHERS: [], SCATTERS: []}
    whole = {f"Layer {layer}": [] for layer in LAYERS}
    comes = dict.fromkeys(rule)
    for layer, way in order():
        for asked, before in rule.items():  # all that may begin before this computation begins
            if comes[asked] is None and (before is None or before in begun):
                comes[asked] = max(gathered, begun.get(before, 0))
                gathered = comes[asked] + GATHER
                streams[GATHERS].append((comes[asked], GATHER, name(asked[0]), ARRIVES))
        arrives = comes[layer, way] + GATHER if (layer, way) in comes else 0
        begun[layer, way] = max(arrives, computed)
        computed = begun[layer, way] + (FORWARD if way == "Forward" else BACKWARD)
        streams[COMPUTE].append((begun[layer, way], computed - begun[layer, way], name(layer), way))
        if layer in LAYERS:
            whole[f"Layer {layer}"] += [(arrives, computed - arrives, "", WHOLE), (comes[layer, way], GATHER, "", ARRIVES)]
        if way == "Backward" and layer != "output":
            scattered = max(scattered, computed) + SCATTER
            streams[SCATTERS].append((scattered - SCATTER, SCATTER, name(layer), LEAVES))
    return streams | whole


def name(layer):
    return "R" if layer in ("embedding", "output") else str(layer)


def diagram():
    return timeline(
        "FSDP2: weights of the next layers arrive while one computes (R: embedding and output layer)",
        "Timeline of three streams and four layers. In the forward pass the gathers run up to two layers ahead of the computation, "
        "in the backward pass one. A layer's weights are whole until its computation ends, once in each pass. After the "
        "backward pass of a layer its gradient is reduced and scattered, while the next layer computes.",
        lanes(),
    )
