"""Measurements that others published, as rows. No torch.

    for row in published.rows():
        print(row["gpu"], row["model"], row["seconds"], row["url"])

A row is one measurement: what ran (model, batch, length, precision, ...), on what (gpu, gpus, parallel), the value and unit
as printed, the source at a commit, and `seconds`: of one optimizer step on each GPU (training), one forward pass, one decoded
token of the batch, or one whole generation. `batch` counts sequences of one data-parallel rank and forward pass. What the
source does not state is null. A rejected row stays, with `usable: false` and the reason in its note.

`master_weights: "fp32"` says that a trainer keeps fp32 weights and moments beside products in bf16, `foreach` that AdamW runs one kernel
per operation over all weights, `gradient_buckets: false` that gradients are summed after the backward pass, `even_stages: false` that each stage of a pipeline has as many layers
and the last one the output layer too, `fused_kernels` that a library brings kernels of its own, `reentrant_fsdp1` that FSDP1 shards frozen weights
under reentrant checkpointing, `kbit_prepared` that `prepare_model_for_kbit_training` left norms and embeddings in fp32.

A row of kind "memory" is a peak (`memory_gib`), or `fits: false` where the run stopped for lack of memory.
"""

import difflib
import json
import math
import re
from pathlib import Path

from dryrun.tables import hardware

DEFAULT = Path(__file__).with_name("data") / "published.json"
KINDS = ("train", "forward", "decode", "generate", "memory")
NEEDED = (
    "id",
    "source",
    "path",
    "date",
    "gpu",
    "gpus",
    "kind",
    "klass",
    "model",
    "batch",
    "seq",
    "precision",
    "attention",
)
NEEDED += ("compiled", "checkpointing", "accumulation", "optimizer", "value", "unit", "seconds", "usable", "note")
SECONDS = {"ms": 1e-3, "ms/step": 1e-3, "ms/iteration": 1e-3, "ms/token": 1e-3, "s/step": 1, "s/iter": 1, "s/batch": 1}
RATES = (
    "tokens/s",
    "tokens/s/GPU",
    "samples/s",
    "sequences/s",
    "output tokens/s",
    "output tokens/s/GPU",
    "prompt and output tokens/s",
    "ms/token of the batch",
)
# Of a whole run: without its number of steps no second of one step follows.
WHOLE_RUN = re.compile(r"minutes per \d+ iterations|minutes for \d+ epochs? of \w+|s \(whole run\)|hours \(whole run\)")
MEMORY = ("GiB", "GB", "MiB", "GB or GiB")
SAME = 0.01  # printed values are rounded
HEADROOM = 1.05  # clocks above the boost clock that a vendor prints
PASSES = {"forward": 2, "train": 6}  # FLOPs for each parameter and token
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "q8": 1, "int4": 0.5, "q4": 0.5, "nf4": 0.5, "nvfp4": 0.5, "mxfp4": 0.5}


def rows(path=DEFAULT):
    """Every row; ValueError with the first problem, if there is one."""
    found, problems = checked(path)
    if problems:
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ValueError(f"{problems[0]}{more}")
    return found


def checked(path=DEFAULT):
    """The rows that are sound, and one line for each problem of the others."""
    text = Path(path).read_text(encoding="utf-8")
    path = _shown(path)
    try:
        read = json.loads(text)
        read = [_with_url(row) for row in read["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path}: no table of rows, {{"rows": [...]}}: {error}') from error
    sound, problems, ids = [], [], set()
    for row in read:
        wrong = list(row_problems(row))
        if row.get("id") in ids:
            wrong.append(f"id: {row['id']!r} is the id of another row: give each row its own")
        ids.add(row.get("id"))
        if wrong:
            line = _line(text, row.get("id"))
            problems += [f"{path}{line}: row {row.get('id')}: {said}" for said in wrong]
        else:
            sound.append(row)
    return sound, problems


def row_problems(row):
    """What is wrong in one row: field, what, fix."""
    missing = [name for name in NEEDED if name not in row]
    if missing:
        yield f"{missing[0]}: the field is missing: write null where the source does not state it"
        return
    if row["kind"] not in KINDS:
        yield f"kind: {row['kind']!r} is not known{_near(row['kind'], KINDS)}: one of {', '.join(KINDS)}"
        return
    if not row["gpu"]:
        yield "gpu: no GPU is named: a row without one says nothing about time"
        return
    try:
        hardware.accelerator(row["gpu"])
    except ValueError as error:
        yield f"gpu: {error}"
        return
    if not (isinstance(row["gpus"], int) and row["gpus"] > 0):
        yield f"gpus: {row['gpus']!r}: give the number of GPUs"
        return
    yield from _origin_problems(row)
    yield from _value_problems(row)


def _origin_problems(row):
    if not str(row.get("url") or "").startswith("https://"):
        yield f"url: {row.get('url')!r}: give the address of the source"
    if row["usable"] not in (True, False):
        yield f"usable: {row['usable']!r}: true, or false with the reason in the note"
    if row["usable"] is False and not str(row["note"] or "").strip():
        yield "note: the row is rejected without a reason: say why it cannot be used"
    if not row["date"] and not str(row["note"] or "").strip():
        yield "date: null without a note: say what dates the measurement"


def _value_problems(row):
    value, unit = row["value"], row["unit"]
    if row["kind"] == "memory":
        yield from _memory_problems(row)
        return
    if value is None or unit is None:
        if row["usable"] or not row.get("memory_gib"):
            yield "value: null: a row of time needs a value and its unit"
        return
    if not (isinstance(value, int | float) and value > 0):
        yield f"value: {value!r}: give a number above zero"
        return
    if unit not in SECONDS and unit not in RATES and not WHOLE_RUN.fullmatch(unit):
        yield f"unit: {unit!r} is not known{_near(unit, [*SECONDS, *RATES])}: see SECONDS and RATES in fitting/published.py"
        return
    follows = seconds(row)
    if row["seconds"] is None:
        if row["usable"]:
            yield f"seconds: null in a usable row: {follows:g} follow" if follows else "seconds: null in a usable row"
        return
    if follows and not math.isclose(follows, row["seconds"], rel_tol=SAME):
        yield f"seconds: {row['seconds']:g}, but {value:g} {unit} give {follows:g}"
        return
    if row["usable"]:
        yield from _peak_problems(row)


def _memory_problems(row):
    if row.get("fits") is False:
        if row.get("memory_gib"):
            yield "memory_gib: a run that stopped for lack of memory has no peak: null"
        return
    if not row.get("memory_gib"):
        yield "memory_gib: null: a row of memory needs a peak, or fits: false"
        return
    if row["unit"] not in MEMORY:
        yield f"unit: {row['unit']!r} is not known{_near(row['unit'], MEMORY)}: one of {', '.join(MEMORY)}"
    size = hardware.accelerator(row["gpu"]).get("memory")
    if row["usable"] and size and row["memory_gib"] > size * 1.01:
        yield f"memory_gib: {row['memory_gib']:g} are more than the {size:g} GB of {row['gpu']}"


def _peak_problems(row):
    """A value that needs more than the GPU has is not what its row says."""
    parameters, gpu = _parameters(row), hardware.accelerator(row["gpu"])
    if not parameters or not row["batch"]:
        return
    if row["kind"] == "decode":
        read = parameters * _bytes(row["precision"]) / row["seconds"] / row["gpus"]
        if gpu.get("bandwidth") and read > HEADROOM * gpu.get("bandwidth") * hardware.GB:
            yield f"value: reading the weights takes {read / 1e9:,.0f} GB/s, the GPU has {gpu.get('bandwidth'):,.0f}"
    elif row["kind"] in PASSES and row["seq"]:
        passes = PASSES[row["kind"]] if row.get("method") in (None, "full") else 4
        tokens = row["batch"] * row["seq"] * (row["accumulation"] or 1) * ranks(row)
        needed = passes * parameters * tokens / row["seconds"] / row["gpus"] / 1e12
        peak = _peak(gpu, row["precision"])
        if peak and needed > HEADROOM * peak:
            yield f"value: the products take {needed:,.0f} TFLOP/s, {row['gpu']} has {peak:,.0f} in {row['precision']}"


def ranks(row):
    """Data-parallel ranks: the GPUs that work on sequences of their own."""
    parallel = row.get("parallel") or {}
    return max(1, row["gpus"] // math.prod(parallel.get(name, 1) for name in ("tp", "pp", "cp")))


def seconds(row):
    """Seconds by value and unit, or None where they do not follow."""
    value, unit, batch = row["value"], row["unit"], row["batch"]
    if not value:
        return None
    if unit in SECONDS:
        return value * SECONDS[unit]
    if not batch:
        return None
    if unit == "ms/token of the batch":
        return value * batch / 1e3
    if unit not in RATES:
        return None
    accumulation = row["accumulation"] or 1
    everywhere = row["gpus"] if unit.endswith("/GPU") else 1
    if row["kind"] == "decode":
        work = batch
    elif unit.startswith("prompt"):
        work = batch * (row["prompt"] + row["output"])
    elif unit.startswith("output"):
        work = batch * row["output"] if row.get("output") else None
    else:
        work = batch * accumulation * ranks(row)
        if unit.startswith("tokens"):
            work = work * row["seq"] if row["seq"] else None
    return work / value / everywhere if work else None


def _parameters(row):
    """Active parameters, or None: a lower bound for the check against the peak."""
    config = row.get("config") or {}
    if config.get("experts") or "moe" in row["klass"]:
        return None
    stated = config.get("parameters") or row.get("parameters")
    if isinstance(stated, int | float):
        return stated * 0.9  # of embeddings only a row is read
    size = re.search(r"(?<![\dx.])(\d+(?:\.\d+)?)b\b", row["model"] or "")
    return float(size.group(1)) * 0.85e9 if size and "x" not in row["model"] else None


def _bytes(precision):
    return next((size for name, size in BYTES.items() if str(precision).startswith(name)), 0)


def _peak(gpu, precision):
    precision = str(precision)
    if precision.startswith(("nvfp4", "mxfp4")):
        return gpu.get("fp4") or 2 * (gpu.get("fp8") or gpu.half)  # tensor cores do twice as many products in 4 bits
    if "fp8" in precision or precision == "int8-mixed":
        return gpu.get("fp8") or gpu.get("int8") or gpu.half
    if precision in ("fp32", "tf32"):
        return gpu.get(precision)
    return gpu.half


def _near(name, names):
    close = difflib.get_close_matches(str(name), names, 1, 0.4)
    return f", did you mean {close[0]!r}?" if close else ""


def _with_url(row):
    """The row with its address, built from repository, commit and path where the row has none."""
    if row.get("url") or not row.get("source"):
        return row
    path, commit = str(row.get("path") or ""), row.get("commit")
    if path.startswith("https://"):
        address = path.split()[0]
    elif commit:
        address = f"https://github.com/{row['source']}/blob/{commit}/{path.split(' (')[0]}"
    else:
        address = f"https://github.com/{row['source']}"
    return row | {"url": address}


def _shown(path):
    """The path as seen from the working directory, where it lies below it."""
    path, here = Path(path).resolve(), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _line(text, name):
    at = text.find(f'"id": {json.dumps(name)}')
    return f":{text.count(chr(10), 0, at) + 1}" if at >= 0 else ""
