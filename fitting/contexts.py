"""What a process holds of a GPU that PyTorch did not allocate: the CUDA context, buffers of NCCL. From out-of-memory messages that others
published, in fitting/data/contexts.json: their figure in use, less what is allocated and what is reserved beside it."""

import json
import statistics
from pathlib import Path

MESSAGES = Path(__file__).with_name("data") / "contexts.json"
MOST = 0.9  # part of the messages of several GPUs whose figure the upper end holds


def outside(message):
    """GiB of one message."""
    found = message["in_use_gib"] - message["allocated_gib"] - message["reserved_gib"]
    if not 0 < found <= message["in_use_gib"] <= message["total_gib"]:
        raise ValueError(f"{MESSAGES.name}, {message['url']}: {found:.2f} GiB cannot be: compare its figures with the message")
    return found


def messages(*, alone):
    """Those of processes that had a GPU alone, or of processes on several GPUs."""
    return [each for each in json.loads(MESSAGES.read_text(encoding="utf-8"))["messages"] if (each["gpus"] == 1) is alone]


def constants():
    """{"context": GiB on one GPU, in the median; "context_many": GiB that nine of ten processes on several GPUs stay below}"""
    one, many = ([outside(each) for each in messages(alone=alone)] for alone in (True, False))
    most = statistics.quantiles(many, n=100, method="inclusive")[round(100 * MOST) - 1]
    return {"context": round(statistics.median(one), 3), "context_many": round(most, 3)}
