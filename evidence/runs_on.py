"""What a notebook runs on, as the head of its source says: `runs_on`, one word, and after a comma the reason where it is not a GPU.

The list of notebooks, the head of each notebook's page, the GPU workflow and the tests read it from here:
`python -m evidence.runs_on gpu gpus` prints the names of the notebooks that use one GPU or two, `python -m evidence.runs_on here` of
those that use the GPUs of this machine.
"""

import re
import sys

from . import measured_code, notebooks
from .problems import Problem, nearest

SENTENCES = {
    "gpu": "a GPU; without one it measures a smaller size on the CPU",
    "gpus": "two GPUs; without them it measures two processes on the CPU",
    "cpu": "a CPU: {why}",
    "counts": "no particular machine: it counts and predicts",
    "records": "no particular machine: it reads {why}",
}
ON_A_GPU = ("gpu", "gpus")
REACHES_A_GPU = re.compile(r"torch\.cuda\.(is_available|device_count)\(\)|from dryrun.answer import bench")
HIDES_ALL = re.compile(r"""environ\["CUDA_VISIBLE_DEVICES"\] = "\"""")


def of(name):
    """(kind, reason) of a notebook; the reason is "" where its kind needs none. Problem where the head does not say it."""
    head, path = notebooks.read_source(name).metadata, notebooks.FOLDER / f"{name}.py"
    kind, _, why = str(head.get("runs_on", "")).partition(", ")
    if kind not in SENTENCES:
        what = f"runs_on: there is no {kind}{nearest(kind, SENTENCES)}" if kind else "the head does not say what it runs on"
        raise Problem(path, what, f"write `runs_on:` and one of {', '.join(SENTENCES)}", 1)
    if ("{why}" in SENTENCES[kind]) != bool(why):
        fix = f"write `runs_on: {kind}, the reason`" if not why else f"write `runs_on: {kind}`"
        raise Problem(path, f"runs_on: {kind} {'needs a reason' if not why else 'needs no reason'}", fix, 1)
    return kind, why


def sentence(name):
    """What the notebook needs, in words."""
    kind, why = of(name)
    return SENTENCES[kind].format(why=why)


def named(*kinds):
    """The names of all notebooks of these kinds."""
    return [name for name in notebooks.names() if of(name)[0] in kinds]


def check(name):
    """Where the code of a notebook is not of the kind that its head says. A head that says none is refused by the list of notebooks."""
    path, notebook = notebooks.FOLDER / f"{name}.py", notebooks.read_source(name)
    if "runs_on" not in notebook.metadata:
        return
    try:
        kind, _ = of(name)
    except Problem as problem:
        yield problem
        return
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code = "\n".join(cell.source for cell in cells)
    reaches, hides = bool(REACHES_A_GPU.search(code)), bool(HIDES_ALL.search(code))
    measures = any(map(measured_code.measures, cells))
    if kind in ON_A_GPU and not (reaches and measures):
        what = f"runs_on: {kind}, and no cell {'asks for a GPU' if measures else 'measures'}"
        yield Problem(path, what, "measure there, or write what it runs on", 1)
    if kind not in ON_A_GPU and reaches:
        yield Problem(path, f"runs_on: {kind}, and a cell asks for a GPU", "write `runs_on: gpu`", 1)
    if hides and kind in ON_A_GPU:
        what = f"runs_on: {kind}, and it hides the GPU of its machine"
        yield Problem(path, what, "leave CUDA_VISIBLE_DEVICES as it is", 1)
    if (kind == "gpu") != ("accelerator" in notebook.metadata) and kind != "gpus":
        has = "asks Colab for no GPU" if kind == "gpu" else "asks Colab for a GPU"
        fix = "write `accelerator: GPU` into its head, as in notebooks/one_gpu.py" if kind == "gpu" else "take `accelerator` and `colab` out of the head"
        yield Problem(path, f"runs_on: {kind}, and the head {has}", fix, 1)


def for_gpus(count):
    """The names of the notebooks that use so many GPUs: with one, those for two would measure two processes on the CPU."""
    return named(*ON_A_GPU[:count]) if count else []


if __name__ == "__main__":
    asked = sys.argv[1:]
    if asked == ["here"]:
        import torch

        found = for_gpus(torch.cuda.device_count())
        if not found:
            sys.exit("evidence.runs_on: torch sees no GPU, so no notebook uses one here. Fix: name kinds, as in `python -m evidence.runs_on gpu`")
        print(" ".join(found))
    else:
        print(" ".join(named(*asked)))
