"""How much faster will two GPUs be? Put in three numbers of your own.

    python worth_it.py
"""


# --8<-- [start:model]
def speedup(parameters, seconds_alone, link, gpus=2, gradient_bytes=4, accumulation=1):
    """Samples/s on `gpus` against one: (at worst, at best).

    seconds_alone: forward and backward pass of one micro-batch on one GPU. link: bytes/s that a GPU sends in an
    all-reduce, measured with allreduce_speed.py. At worst all communication comes after the backward pass; at best it
    hides behind the last one, which is about two thirds of a micro-batch's time.
    """
    communication = 2 * (gpus - 1) / gpus * gradient_bytes * parameters / link
    computation = accumulation * seconds_alone
    hidden = min(communication, 2 / 3 * seconds_alone)
    return tuple(gpus * computation / (computation + exposed) for exposed in (communication, communication - hidden))
# --8<-- [end:model]


if __name__ == "__main__":
    for label, options in {
        "as it is": {},
        "accumulation of 4": {"accumulation": 4},
        "gradients in 16 bits": {"gradient_bytes": 2},
    }.items():
        worst, best = speedup(parameters=124e6, seconds_alone=0.050, link=6e9, **options)
        print(f"{label}: {worst:.2f}x to {best:.2f}x the samples/s of one GPU")
