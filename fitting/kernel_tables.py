"""Tables of kernels that others timed alone, checked and reduced to what a prediction needs: `dryrun/data/kernels.json`.

    python -m fitting.kernel_tables

`data/kernels/` has the tables, each with its source, commit and license. They say what a kernel takes by itself; what a step adds to
that (clocks under load, gaps, the host) is fitted on steps. A table that no GPU can have made stops the command: a share above the
peak, a latency of nothing, a collective that gets faster with more GPUs.
"""

import itertools
import json
import statistics
from pathlib import Path

from dryrun.tables.hardware import ACCELERATORS

FOLDER = Path(__file__).with_name("data") / "kernels"
REDUCED = Path(__file__).parents[1] / "dryrun" / "data" / "kernels.json"
ROWS = ("1", "4", "16", "64")  # of a decoded batch
# Rows and format whose floor stands for all. Tables of other formats hold the kernel that quantizes activations, which engines do in the
# kernel before, and kernels that no engine's step shows.
FLOOR_OF = "bf16", "16"
HEAD = "128"
LEAST_LATENCY, MOST_LATENCY = 0.5, 100  # microseconds of one kernel
NOISE = 0.1  # share by which two timings of the same may differ


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def reduced():
    """{GPU: what of it is known}, and where it is from."""
    few, attention, collectives, products = (read(name) for name in ("few_rows", "attention", "collectives", "gemm"))
    sources = [products["about"], attention["about"], *collectives["about"]["sources"][:1]]
    found = {
        "about": {
            "what": "kernels alone: large products (share of the peak), products of few rows, attention, all-reduce; see fitting/kernel_tables.py",
            "sources": [{name: source[name] for name in ("source", "path", "commit", "license", "date")} for source in sources],
            "units": "floor, nccl, graphs: microseconds; share: of the data sheet's bandwidth, of large products and attention of its peak; reads: how often attention moves its queries, keys, values and output",
        },
        "gpus": {gpu: _of_gpu(*(of["gpus"][gpu] for of in (few, attention, collectives, products))) for gpu in few["gpus"]},
    }
    wrong = list(problems(found))
    if wrong:
        raise ValueError(f"{wrong[0]} ({len(wrong)} in all): mend the table in fitting/data/kernels, or leave that GPU out of it")
    return found


def _of_gpu(few, attention, collectives, products):
    decode = attention["decode"][HEAD]
    return {
        "large products": {name: of["median_share_mnk_4096"] for name, of in products.items()},
        "products": {
            "floor": few[FLOOR_OF[0]]["fit"][FLOOR_OF[1]]["a_us"],
            "shares": {name: {rows: of["fit"][rows]["s"] for rows in ROWS} for name, of in few.items()},
        },
        "attention": {head: {"share": of["s"], "reads": of["per_byte"]} for head, of in attention["prefill_fit"].items()},
        "cache": {"floor": decode["floor_us"], "share": decode["s"]},
        "nccl": {count: of["fit"][0] for count, of in collectives["collectives"]["all_reduce"].items()},
        "graphs": _in_graphs(collectives["custom"]),
    }


def _in_graphs(engines):
    """{GPUs: microseconds} of a small all-reduce by the kernels that engines bring, replayed: the median of the engines."""
    found = {}
    for kernels in engines.values():
        for name, of in kernels.items():
            if name.endswith("_eager"):
                continue
            for count, values in of.items():
                found.setdefault(count, []).append(values["alpha_us"])
    return {count: round(statistics.median(values), 2) for count, values in found.items()}


def problems(found):
    """What no GPU can have done, a line each."""
    for gpu, tables in found["gpus"].items():
        if gpu not in ACCELERATORS:
            yield f"{gpu}: no GPU of dryrun/data/accelerators"
        shares = {f"large products in {name}": share for name, share in tables["large products"].items()}
        shares |= {f"{name}, {rows} rows": share for name, by_rows in tables["products"]["shares"].items() for rows, share in by_rows.items()}
        shares |= {f"attention, heads of {head}": of["share"] for head, of in tables["attention"].items()} | {"cache": tables["cache"]["share"]}
        for what, share in shares.items():
            if not 0 < share <= 1:
                yield f"{gpu}, {what}: a share of {share} of the peak"
        floors = {"products": tables["products"]["floor"], "cache": tables["cache"]["floor"]}
        floors |= {f"{what}, {count} GPUs": value for what in ("nccl", "graphs") for count, value in tables[what].items()}
        for what, floor in floors.items():
            if not LEAST_LATENCY <= floor <= MOST_LATENCY:
                yield f"{gpu}, {what}: {floor} microseconds before the first byte"
        for what in ("nccl", "graphs"):
            latencies = list(tables[what].values())
            if any(more < (1 - NOISE) * fewer for fewer, more in itertools.pairwise(latencies)):
                yield f"{gpu}, {what}: a collective of more GPUs is faster: {latencies}"


def main():
    found = reduced()
    lines = ",\n".join(f"  {json.dumps(gpu)}: {json.dumps(of)}" for gpu, of in found["gpus"].items())
    text = f'{{"about": {json.dumps(found["about"], indent=1)},\n"gpus": {{\n{lines}\n}}}}'
    REDUCED.write_text(text + "\n", encoding="utf-8")
    print(f"{REDUCED}: {len(json.loads(text)['gpus'])} GPUs")


if __name__ == "__main__":
    main()
