"""`plan()` beside published figures: `dryrun validate --plan`.

Each published step is planned at the conditions that its row states; the constants of its seconds have not seen its source.
Then the order: of two strategies that one source measured on the same GPUs, is the faster one predicted to be faster?
"""

import itertools
import json
from dataclasses import dataclass, replace

from dryrun import Cluster, Job, Model, plan
from dryrun.answer import answer, planner
from dryrun.cost import timing
from dryrun.cost.device_memory import states
from dryrun.cost.runs import LAUNCH_BOUND
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload

from . import judged, published
from .held_out import of_group, source_of
from .rows import run_of

CLOSE = 0.2  # of the published figure
FASTER = 1.1  # times: strategies nearer to each other than that are about as fast


@dataclass(frozen=True)
class Compared:
    """One published figure beside that of the plan."""

    what: str
    published: float
    planned: float
    unit: str
    why: str = ""  # where the ratio is not near 1
    formula: bool = False  # whether its source computed it: then agreement says that both count alike, and no more

    @property
    def ratio(self):
        return self.planned / self.published


# Id of a published row, the strategy of the plan, the network of its nodes, and what explains a ratio far from 1.
STEPS = (
    ("0223", "FSDP2", None, ""),
    ("0225", "FSDP2", 50, ""),
    ("0216", "FSDP2", 25, ""),
    ("0219", "FSDP2", 25, ""),
    ("0227", "FSDP2 x TP 8", 50, ""),
    ("0152", "FSDP2", None, ""),
    ("0081", "FSDP2", None, ""),
    ("0077", "FSDP2", 25, ""),
    ("0105", "FSDP2", None, ""),
    ("0038", "FSDP2", None, ""),
    ("0035", "FSDP2", None, ""),
    ("h2-0824", "DDP", None, "its author calls the machine a slow outlier"),
    ("h2-0826", "ZeRO-2", None, "its author calls the machine a slow outlier"),
)


def compared():
    """[Compared] of the steps, then of the memory."""
    rows = {row["id"]: row for row in published.rows()}
    return [_step(rows[name], strategy, network, why) for name, strategy, network, why in STEPS] + list(_memory())


def _step(row, strategy, network, why):
    workload, setting = run_of(row)
    shared = setting.tensor * setting.pipeline  # the plan's batch is of one GPU
    job = Job(Model(row["model"], workload.model), accumulation=setting.accumulation, precision="bf16" if strategy == "DDP" else "mixed")
    kept = {name: getattr(workload, name) for name in ("model", "length", "checkpointing", "compiled", "fused_loss")}
    step = Workload(batch=max(1, workload.batch // shared), **kept)
    in_node = setting.gpus_per_node
    cluster = Cluster(setting.gpu, gpus=setting.gpus, gpus_per_node=in_node, network=network, adapters=in_node if network else 1)
    here = replace(answer.setting_of(job, cluster), strategy="", attention=setting.attention)  # some kernels are of their years
    (option,) = planner.options(job, cluster, here, strategy, step)
    unseen = of_group(timing.fitted()["held_out"]["source"], source_of(row))
    found = timing.prediction(traced(option.workload), option.workload, option.setting, unseen)
    everywhere = row["gpus"] if row["unit"] == "tokens/s" else 1
    what = f"{row['model']}, {row['gpus']} x {row['gpu']}, {row['seq']} tokens, {strategy}"
    return Compared(what, row["value"] / everywhere, found.tokens_per_second / row["gpus"], "tokens/s per GPU", why)


FALCON = Model("falcon-7b", json.dumps({"name": "falcon-7b", "hidden": 4544, "layers": 32, "heads": 71, "kv_heads": 1, "ffn": 18176, "vocab": 65024}))  # fmt: skip
ZERO = Model("gpt-7.5b", json.dumps({"name": "gpt", "hidden": 4096, "layers": 37, "heads": 32, "ffn": 16384, "vocab": 50304}))


def _memory():
    """Peaks. The ZeRO paper counts model states alone: 16 bytes for each of 7.5 billion parameters on 64 GPUs."""
    for what, model, gpu, strategy, length, size, why in (
        ("Falcon-7B, 8 x A100 40GB, FSDP", FALCON, "a100-sxm4-40", "FSDP2", 4096, 23.8, "its batch is not stated"),
        ("QLoRA of Llama-2 70B, 2 GPUs, FSDP", "llama2-70b", "a100-sxm4-80", "QLoRA x FSDP2", 2048, 35.6,
         "its batch and length are not stated"),
    ):  # fmt: skip
        job, cluster = Job(model, precision="mixed", checkpointing=True), Cluster(gpu, gpus=2 if "QLoRA" in strategy else 8)
        here, step = replace(answer.setting_of(job, cluster), strategy=""), replace(job.workload(), length=length)
        (option,) = planner.options(job, cluster, here, strategy, step)
        yield Compared(what, size, option.needed.expected / 1e9, "GB", why)
    for strategy, size in (("DDP", 120), ("ZeRO-1", 31.4), ("ZeRO-2", 16.6), ("FSDP2", 1.9)):
        job = Job(ZERO, length=2048, precision="mixed", checkpointing=True)
        (option,) = plan(job, Cluster("a100-sxm4-80", gpus=64, network=25, adapters=8), only=strategy)
        what = traced(option.workload)
        held = sum(states(what, option.setting).values()) * 7.5e9 / what.parameters
        yield Compared(f"7.5B on 64 GPUs, model states, {strategy}", size, held / 1e9, "GB", formula=True)


def pairs():
    """[(faster row, slower row, whether the plan's seconds say so)]: one source, the same GPUs, model, batch and length. Steps that wait
    for their CPU say nothing of strategies."""
    seconds = {one.id: one.seconds for one in judged.read() if one.klass != LAUNCH_BOUND}
    found = {}
    for row in published.rows():
        if row["id"] in seconds and row["kind"] == "train" and row["gpus"] > 1:
            names = (
                "source",
                "gpu",
                "gpus",
                "model",
                "batch",
                "seq",
                "precision",
                "compiled",
                "checkpointing",
                "fused_kernels",
            )
            found.setdefault(tuple(str(row.get(name)) for name in names), []).append(row)
    result = []
    for rows in found.values():
        for one, other in itertools.combinations(rows, 2):
            if _strategy(one) == _strategy(other):
                continue
            fast, slow = sorted((one, other), key=lambda row: _each(row, row["seconds"]))
            if _each(slow, slow["seconds"]) >= FASTER * _each(fast, fast["seconds"]):
                right = _each(fast, seconds[fast["id"]]) < _each(slow, seconds[slow["id"]])
                result.append((fast, slow, right))
    return result


def _strategy(row):
    return str(row.get("parallel")), str(row.get("method")), row["accumulation"]


def _each(row, seconds):
    """Seconds for each sequence."""
    return seconds / (row["accumulation"] or 1) / row["batch"] / published.ranks(row)


def main():
    """Prints both comparisons. Returns the exit status."""
    print(f"{'published step':58} {'published':>10} {'plan':>10} {'ratio':>6}")
    for one in compared():
        far = abs(one.ratio - 1) > CLOSE
        print(
            f"{one.what:58} {one.published:10,.1f} {one.planned:10,.1f} {one.ratio:6.2f} {one.unit}{': ' + one.why if far and one.why else ''}"
        )
    found = pairs()
    share = 100 * sum(right for _, _, right in found) / len(found)
    print(f"pairs of strategies that differ by 10 % or more: {len(found)}, the faster one first in {share:.0f} %")
    return 0
