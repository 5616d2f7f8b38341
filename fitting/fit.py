"""Fits the constants of the roofline to published measurements: `python -m fitting`, or `make fit`.

No row is judged by constants that it helped to fit. The usable rows are divided into folds at random. Each fold gets
constants from the rows of the other folds. The same is done for each source and each GPU family, which is harder.
`dryrun/data/constants.json` keeps the constants of all rows (for predictions), those of each fold (for `validate`), and the errors
of rows of unseen sources (for low and high).
"""

import datetime
import json

import numpy as np
from scipy.optimize import least_squares

from dryrun.cost import timing

from . import bands, choose, published
from .choose import CHOICES
from .held_out import OTHERS, family_of, fold_of, groups_of, pairs_of, predictable, source_of, unseen
from .peaks import memory_constants, peaks

START = {
    "product": 0.72, "product_recent": 0.85, "product_fp32": 0.85, "attention_flash": 0.7, "attention_triton": 0.5,
    "bandwidth": 0.7,
    "launch": 5e-6, "dispatch": 12e-6, "script": 9e-6, "megatron": 24e-6,
    "power_limited": 0.6,
    "half_rate": 1.3,
    "bandwidth_gddr": 1.2,
    "bandwidth_large_cache": 1.3,
    "product_fp8": 0.7,
    "decode_dispatch": 15e-6,
    "unpack": 4, "contention": 1.05, "link": 0.6, "streaming": 0.9,
    "floors": 1.0, "compiled_floors": 1.0, "layer_launched": 40e-6, "layer_experts": 10e-6, "server_step": 1e-3, "old_server_step": 2e-3, "server_sequence": 15e-6,
}  # fmt: skip
MEANING = {
    "product": "share of the 16-bit or TF32 peak that matrix products reach after padding to tiles and waves",
    "product_recent": "times this on Hopper and data-center Blackwell",
    "product_fp32": "share of the fp32 peak that matrix products without tensor cores reach",
    "attention_flash": "times what attention reaches alone, with FlashAttention 2 on Hopper and data-center Blackwell, where NVIDIA's libraries have newer kernels",
    "attention_triton": "the same with FlashAttention of 2022, written in Triton",
    "bandwidth": "share of the memory bandwidth that kernels reach",
    "launch": "seconds that each kernel adds on the GPU",
    "dispatch": "seconds of CPU for each operator that launches, in eager PyTorch",
    "script": "seconds of CPU for each operator that launches, in TorchScript",
    "megatron": "seconds of CPU for each fused operator that launches, in Megatron-LM",
    "power_limited": "share of the boost clock that T4, L4 and A10 keep in matrix products: their power is limited",
    "half_rate": "times this share of the peak on GeForce, whose 16-bit peak with fp32 sums is half of what its tensor cores do",
    "bandwidth_gddr": "times this share of the memory bandwidth on GPUs with GDDR",
    "bandwidth_large_cache": "and on those with GDDR and an L2 cache of 24 MB or more",
    "product_fp8": "times this share of the fp8 peak: scaling and casting come on top",
    "decode_dispatch": "seconds of CPU for each operator of a decoded token, in eager PyTorch",
    "unpack": "fp32 operations that a weight of fewer than 16 bits costs when decoding, beside those of its product",
    "contention": "how much longer kernels take in micro-batches with collectives",
    "link": "share of a link's peak that collectives reach",
    "streaming": "share of the bandwidth of a long stream alone that it reaches in a step: weights when decoding, an optimizer's step",
    "floors": "how long products and attention of a decoded token take before their first byte, with the small kernels between them, in those alone",
    "compiled_floors": "the same of kernels that torch.compile makes",
    "layer_launched": "seconds that a layer adds where the CPU launches each kernel",
    "layer_experts": "seconds that routing adds to a layer with experts",
    "server_step": "seconds between two steps of a server whose scheduler is Python",
    "old_server_step": "the same before 2025",
    "server_sequence": "and for each sequence of its batch",
}
AT_MOST_ONE = {"product", "product_fp32", "bandwidth", "power_limited", "link", "streaming", "product_recent",
               "attention_flash", "attention_triton"}  # fmt: skip
MOST_OF_SOURCE = 40  # errors of a class that one source brings to its band
# What holds a constant at its start, as a weight on its logarithm: little beside a single row, so it decides where no row says anything.
HELD = 0.1
TUNED = {
    "training, one GPU",
    "training, many GPUs",
    "forward",
    "decode",
    "fp8",
    "tensor and pipeline parallel",
}  # the classes that the constants are fitted on


def fit(data, chosen, start=None, choice=CHOICES[0], tolerance=1e-8):
    """Constants that make the errors of the chosen rows small: least squares of their logarithms, where large errors count less.

    data: `held_out.Predictable`. chosen: whether each of its rows may be seen. start: where the search begins; it ends at the same constants
    from all that are near. choice: how rows and errors count.
    """
    chosen = np.asarray(chosen) & np.isin(data.classes, list(TUNED))
    seen, start = np.flatnonzero(chosen), start or START
    weights = np.sqrt(choose.weights([data.rows[place] for place in seen], choice))
    weights /= np.sqrt(np.mean(weights**2))
    mine, measured = data.runs.only(seen), np.log(data.measured[chosen])
    names, begin, expected = list(START), _logarithms(start), _logarithms(START)
    highest = np.array([0.0 if name in AT_MOST_ONE else np.inf for name in names])

    def errors(logarithms):
        predicted = mine.seconds(dict(zip(names, np.exp(logarithms), strict=True)))
        return np.concatenate([weights * (np.log(predicted) - measured), HELD * (logarithms - expected)])

    found = least_squares(errors, begin, bounds=(-np.inf, highest), loss="soft_l1", f_scale=choice.large_error, ftol=tolerance, xtol=tolerance)
    return {name: float(value) for name, value in zip(names, np.exp(found.x), strict=True)}


def _logarithms(constants):
    return np.log([constants[name] for name in START])


def everything(rows):
    """What `dryrun/data/constants.json` holds."""
    data = predictable(rows)
    of_fold, choice, reached = choose.nested(data, lambda seen, choice, start: fit(data, seen, start, choice, choose.LOOSE))
    for name, found in reached.items():
        print(f"{name:24} unseen sources: median error {found['median']} %, {found['short']} points short of nine in ten{'  TAKEN' * (name == choice.name)}")
    every, held, folds = np.ones(len(data.rows), bool), {}, choose.folds(data)
    constants = fit(data, every, None, choice)
    for name, of in (("fold", fold_of), ("source", source_of), ("family", family_of)):
        groups = groups_of(data, of)
        held[name] = {}
        for group in sorted({*groups, OTHERS}):
            alone = set(folds[groups == group]) if name == "source" else set()
            made = of_fold[alone.pop()] if len(alone) == 1 else choice  # without the rows that it judges
            held[name][group] = _rounded(fit(data, groups != group, constants, made))
    constants = _rounded(constants)
    errors = band_errors(data, held["source"], constants)
    return {
        "fitted": datetime.date.today().isoformat(),
        "rows": len(data.rows),
        "choice": choice.name,
        "choices": reached,
        "meaning": MEANING,
        "constants": constants,
        "held_out": held,
        "memory": memory_constants(peaks(rows)),
        "errors": errors,
        "stretched": bands.stretched(errors),
        "ratio_errors": ratio_errors(data, held["source"]),
    }


def band_errors(data, held, constants):
    """{class: {source: errors of its rows, by constants that had not seen it}}: low and high come from these. The class is that of a
    prediction, by the constants of all rows. Of a source with more rows than `MOST_OF_SOURCE` they are that many quantiles: many rows of
    one host are no better known."""
    found = {}
    for row, error, klass in zip(data.rows, unseen(data, held, source_of), data.runs.classes(constants), strict=True):
        found.setdefault(klass, {}).setdefault(source_of(row), []).append(float(error))
    return {klass: {source: _thinned(of) for source, of in sorted(by_source.items())} for klass, by_source in sorted(found.items())}


def _thinned(errors):
    count = min(len(errors), MOST_OF_SOURCE)
    return [round(float(error), 3) for error in np.quantile(errors, (np.arange(count) + 0.5) / count)]


def ratio_errors(data, held):
    """{change: sorted errors of its effect}, on rows whose source the constants had not seen. A ratio is of one GPU."""
    pairs = pairs_of(data.rows, unseen(data, held, source_of))
    return {change: sorted(round(error, 3) for error in found) for change, found in pairs.items() if change != "gpu"}


def _rounded(constants):
    return {name: float(f"{value:.4g}") for name, value in constants.items()}


def main():
    """Writes dryrun/data/constants.json."""
    result = everything(published.rows())
    _write(result)
    print(f"{timing.CONSTANTS}: {result['rows']} rows; {json.dumps(result['constants'])}")
    return 0


def errors_alone(rows):
    """Writes the errors of the predictions by the constants that are there: after a change of what is predicted that needs no others."""
    data, known = predictable(rows), timing.fitted()
    held = known["held_out"]["source"]
    errors = band_errors(data, held, known["constants"])
    _write(known | {"errors": errors, "stretched": bands.stretched(errors), "ratio_errors": ratio_errors(data, held)})


def memory_alone():
    """Writes the part of the file that is about memory; the seconds stay."""
    constants = memory_constants(peaks(published.rows()))
    _write(timing.fitted() | {"memory": constants})
    print(json.dumps({name: value for name, value in constants.items() if not name.startswith("errors")}))


def _write(result):
    timing.CONSTANTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    timing.fitted.cache_clear()
