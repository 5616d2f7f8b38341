"""What servers said at their start that their weights and their KV cache take, against what `dryrun` says of the same model, format and context:
`python -m fitting.serving_logs`. The rows are logs that others published, in fitting/data/serving_logs.json. No torch.

A row is compared where its log and `dryrun` speak of the same thing, and has a reason where they do not: a model that `dryrun` does not list, a
format that it does not have, an engine that keeps its cache in another way. llama.cpp keeps the embedding on the CPU, so its buffers are summed.
"""

import json
import statistics
from functools import lru_cache
from pathlib import Path

from dryrun import Cluster, Generation
from dryrun.answer.inference import Served
from dryrun.step import memory_facts, profiles
from dryrun.step.workload import Workload
from dryrun.tables.hardware import GiB

LOGS = Path(__file__).with_name("data") / "serving_logs.json"
ANY_GPU = "h200-sxm"  # bytes of weights and cache are the same on all
SIXTEEN_BITS = 2.0  # bytes of an element of the cache that `dryrun` predicts
# Bytes of one element as each engine allocates it. SGLang's figure of fp4 leaves the scales out.
KV_BYTES = {"auto": 2.0, "f16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp4_e2m1": 0.5,
            "q8_0": 8.5 / 8, "q4_0": 4.5 / 8, "iq4_nl": 4.5 / 8}  # fmt: skip
# Of a latent with an index beside it, in vLLM's fp8: 512 values, their scales and 64 values in 16 bits; an index of 128 values and a scale.
LATENT_FP8 = {"glm-5": (656 / 1152, 132 / 256)}
ROUNDED = 0.02  # by which tokens and printed concurrency may differ before the second one counts
FAMILIES = {"deepseek-v2": "DeepSeek V2", "deepseek-v3": "DeepSeek V3 and R1", "deepseek-v4": "DeepSeek V4", "gemma-3": "Gemma 3", "gemma-4": "Gemma 4",
            "glm": "GLM", "gpt-oss": "gpt-oss", "kimi": "Kimi K2", "llama": "Llama", "meta-llama": "Llama", "minimax": "MiniMax M2", "mistral": "Mistral Small",
            "nemotron": "Nemotron 3", "qwen2.5": "Qwen2.5", "qwen3.5": "Qwen3.5 and 3.6", "qwen3.6": "Qwen3.5 and 3.6", "qwen3": "Qwen3"}  # fmt: skip
UNLISTED = "not listed by dryrun"


def rows():
    """The logs, each checked: an address, and figures that can be."""
    found = json.loads(LOGS.read_text(encoding="utf-8"))["rows"]
    for row in found:
        said = [row.get(name) for name in ("weights_gib", "kv_gib")]
        if not row["url"].startswith("https://") or not any(said) or any(figure is not None and not 0 < figure < 2000 for figure in said):
            raise ValueError(f"{LOGS.name}, {row['model']}: {said} at {row['url']!r} cannot be: compare the row with its log")
    return found


def family(row):
    """Of models that share their code."""
    return next((label for start, label in FAMILIES.items() if (row["name"] or "").startswith(start)), UNLISTED)


@lru_cache(maxsize=256)
def known(name):
    """What one decoded token of a model keeps, from its profile or from the table of memory: nothing is traced."""
    workload = Workload(name, 1, 1, kind="decode", compiled=True)
    return profiles.profiled(workload) or memory_facts.of(workload)


def weights(row):
    """GiB of weights on each GPU, as `dryrun` says."""
    return Served(Generation(row["name"], weights=row["weights"]), Cluster(ANY_GPU, row["gpus"]), known(row["name"])).weights / GiB


def element(dtype):
    """Bytes of an element of the cache: "q8_0/f16" has keys in one format and values in the other. None where a format is not known."""
    found = [KV_BYTES.get(one) for one in (dtype or "").split("/")]
    return None if None in found else statistics.mean(found)


def tokens(row):
    """For which the cache has room. Where groups of layers differ, vLLM's own figure counts each group's tokens, and its concurrency does not."""
    full = (row.get("concurrency") or 0) * (row["context"] or 0)
    return full if full and abs(full / row["kv_tokens"] - 1) > ROUNDED else row["kv_tokens"]


def cache(row):
    """GiB on each GPU of a cache for the tokens of the log, as `dryrun` says. SGLang has a pool for layers of each kind."""
    traced, share = known(row["name"]), element(row["kv_dtype"]) / SIXTEEN_BITS
    latent, index = next((parts for name, parts in LATENT_FP8.items() if row["name"].startswith(name) and share < 1), (share, share))
    part = row.get("part")
    if part == "window":
        return share * row["kv_tokens"] * traced.window_keys / min(row["gpus"], traced.window_heads or traced.cache_heads) / GiB
    if part == "all":
        return share * row["kv_tokens"] * (traced.keys / min(row["gpus"], traced.cache_heads) + traced.shared_keys) / GiB
    context = row["context"] or row["kv_tokens"]
    state = traced.cache_on_each(0, row["gpus"])  # which stays in its own format
    indexed = traced.shared_keys * context
    each = latent * (traced.cache_on_each(context, row["gpus"]) - state - indexed) + index * indexed + state
    return each * tokens(row) / context / GiB


def why_not_weights(row):
    """Why the weights of a row are not compared, or ""."""
    if row["weights_gib"] is None:
        return "the log does not say it"
    if row["name"] is None:
        return "dryrun does not list the model"
    if row["weights"] is None:
        return "the format is not said" if "not said" in row["format"] else "dryrun has no such format"
    if row["gpus"] is None:
        return "the number of GPUs is not said"
    return "the engine keeps more" if row.get("weights_kept") else ""


def why_not_cache(row):
    """Why the cache of a row is not compared, or ""."""
    if row["kv_gib"] is None or row["kv_tokens"] is None:
        return "the log does not say it"
    if row["name"] is None:
        return "dryrun does not list the model"
    if element(row["kv_dtype"]) is None:
        return "the format of the cache is not known"
    if row["gpus"] is None:
        return "the number of GPUs is not said"
    if row.get("kept"):
        return "the engine keeps more"
    traced = known(row["name"])
    if row.get("part") or not (traced.window_keys or traced.state):
        return ""
    if row["context"] is None:
        return "the context is not said"
    return "the concurrency is not said" if row["engine"] == "vLLM" and not row.get("concurrency") else ""  # see `tokens`


def compared():
    """[(row, predicted / logged weights or the reason, predicted / logged cache or the reason)] of all rows"""
    return [(row, why_not_weights(row) or weights(row) / row["weights_gib"], why_not_cache(row) or cache(row) / row["kv_gib"]) for row in rows()]


def ratios(of):
    """Those of an iterable of ratios and reasons."""
    return [one for one in of if not isinstance(one, str)]


def errors(which, found=None):
    """{model: median error of its rows}, by which each model counts once. which: 1 for weights, 2 for the cache."""
    of = {}
    for one in found or compared():
        for ratio in ratios([one[which]]):
            of.setdefault(one[0]["name"], []).append(abs(ratio - 1))
    return {name: statistics.median(each) for name, each in of.items()}


def main():
    for row, of_weights, of_cache in compared():
        said = ["-" if one == "the log does not say it" else one if isinstance(one, str) else f"{one:.3f}" for one in (of_weights, of_cache)]
        print(f"{row['engine'][:16]:16} {row['name'] or '(' + row['model'][:28] + ')':28} {row['format'][:16]:16} {said[0]:32} {said[1]:36} {row['url']}")
    for which, what in ((1, "weights"), (2, "cache")):
        each = sorted(errors(which).values())
        print(f"{what}: {len(each)} models, median error {statistics.median(each):.1%}, nine of ten at most {each[round(0.9 * (len(each) - 1))]:.1%}")


if __name__ == "__main__":
    main()
