"""What network hides the all-reduce? Put in numbers of your own.

    python network.py
"""


# --8<-- [start:network]
def network(parameters, tokens, tflops, trained=None, processes=2, gradient_bytes=4, accumulation=1):
    """What a step of one of `processes` sends and computes.

    tokens: of a micro-batch of one process. tflops: what the process reaches in training, in TFLOP/s, not its peak.
    trained: parameters with a gradient, if not all (LoRA). Returns megabytes sent, seconds of computation, and the
    bandwidth in Gbit/s that hides the sending behind the backward pass of the last micro-batch.
    """
    trained = parameters if trained is None else trained
    sent = 2 * (processes - 1) / processes * gradient_bytes * trained
    forward = 2 * parameters * tokens / (tflops * 1e12)
    backward = (2 * parameters + 2 * trained) * tokens / (tflops * 1e12)
    return {"sent": sent / 1e6, "seconds": accumulation * (forward + backward), "needed": 8 * sent / backward / 1e9}
# --8<-- [end:network]


if __name__ == "__main__":
    for label, options in {
        "BERT-base": {"parameters": 109.5e6},
        "Llama-1B, LoRA of rank 16": {"parameters": 1.236e9, "trained": 11.3e6},
    }.items():
        step = network(tokens=1024, tflops=1, **options)
        print(f"{label}: sends {step['sent']:.0f} MB, computes {step['seconds']:.2f} s, needs {step['needed']:.2f} Gbit/s")
