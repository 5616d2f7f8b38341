# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   runs_on: gpu
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Hardware: what the numbers of a GPU decide
#
# **Which GPU runs a model, how fast, and what do a second GPU, a link and a power supply
# change?**
#
# Three numbers of a data sheet decide most. Memory decides what runs at all. Bandwidth limits
# decoding, because each new token reads all weights. Matrix throughput limits training,
# because a step computes much for each byte that it reads.
#
# Peaks come from files with a source for each value, `dryrun/data/accelerators`.
# Speeds are predicted from the trace of the real model code, and measurements that others
# published stand beside them. The last cells measure the machine that runs this notebook.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0"}
if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0")
    source = os.path.abspath(source) if os.path.exists(source) else source
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", source], capture_output=True, text=True)
    if done.returncode:
        fix = "set EVIDENCE_SOURCE to the folder of a copy of the repository, and run this cell again"
        raise RuntimeError(f"{done.stderr}Nothing could be installed from {source}. Fix: {fix}")

from evidence.session import prepare

prepare(PINS)

# %%
import logging
import statistics
import warnings

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt

from dryrun import Cluster, Generation
from dryrun.tables import hardware
from dryrun.cost import timing
from dryrun.answer.answer import answer, usable
from dryrun.tables.hardware import GiB, accelerator
from dryrun.answer.inference import serve
from dryrun.cost.roofline import processor
from dryrun.cost.setting import Setting
from dryrun.cost.timing import prediction
from dryrun.cost.traces import traced
from dryrun.step.workload import Workload
from evidence import plots
from evidence.claims import claim, start, table
from fitting import judged, published
from fitting.held_out import of_group
from fitting.rows import run_of

plots.set_up("hardware")
start("hardware")

# %% [markdown]
# What others published, and what one can buy.

# %%
ROWS = [row for row in published.rows() if row["usable"]]
PRODUCTS = [row for row in hardware.ACCELERATORS.values() if row.product]


def derived(unit, claims):
    """States derived claims of one unit: {name: (sentence, value, at least, at most)}."""
    for name, (sentence, value, least, most) in claims.items():
        claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Decoding: bandwidth
#
# One workload on many GPUs: an 8B Llama in 4 bits answers one prompt, with llama.cpp. One
# author measured it on rented GPUs in May 2024. The prediction beside each figure uses
# constants that had no part of this author's measurements.

# %%
AUTHOR = "XiongjieDai/GPU-Benchmarks-on-LLM-Inference"
MINE = [row for row in ROWS if row["source"] == AUTHOR and row["model"] == "llama3-8b" and row["gpus"] == 1
        and row["precision"] == "q4_k_m" and row["kind"] == "decode" and row["seq"] == 512]
WITHOUT_AUTHOR = of_group(timing.fitted()["held_out"]["source"], AUTHOR)


def decoded(gpu):
    """Tokens per second that are predicted for the author's workload on a GPU."""
    workload, setting = run_of({**MINE[0], "gpu": gpu})
    return 1 / prediction(traced(workload), workload, setting, WITHOUT_AUTHOR).seconds


found = sorted(((decoded(row["gpu"]), row["value"], row["gpu"]) for row in MINE), reverse=True)
table("decode", "Decoding an 8B Llama in 4 bits, one prompt, llama.cpp: predicted, and published in May 2024",
      {"gpu": "GPU", "predicted": "Predicted, tokens/s", "published": "Published, tokens/s"},
      [{"gpu": accelerator(gpu).label, "predicted": ours, "published": theirs} for ours, theirs, gpu in found],
      kind="predicted")
misses = [100 * abs(ours / theirs - 1) for ours, theirs, _ in found]
derived("%", {
    "decode-error": ("Median error of the predicted tokens/s of an 8B Llama in 4 bits, one GPU after the other",
                     statistics.median(misses), 2, 30)})

# %% alt="Bars of tokens per second by GPU, predicted and published: the order is nearly the same, and the prediction mostly a little lower."
plots.bars({accelerator(gpu).label: {"predicted": ours, "published": theirs} for ours, theirs, gpu in found},
           "tokens/s")
plt.show()

# %% [markdown]
# What decides these figures is the bandwidth and not the peak of the tensor cores. Compare an
# RTX 3090 with an RTX 4090: the second has far more FLOP/s, hardly more bandwidth, and gives
# hardly more tokens.

# %%
SMALL, LARGE = accelerator("rtx-3090"), accelerator("rtx-4090")
A100, H100 = accelerator("a100-sxm4-80"), accelerator("h100-sxm5")


def times(first, other, name):
    return other.get(name) / first.get(name)


published_by_gpu = {row["gpu"]: row["value"] for row in MINE}
derived("x", {
    "bandwidth-4090": ("Memory bandwidth of an RTX 4090 against an RTX 3090", times(SMALL, LARGE, "bandwidth"),
                       1.05, 1.1),
    "half-4090": ("Peak of 16-bit products with sums in fp32 of an RTX 4090 against an RTX 3090",
                  LARGE.half / SMALL.half, 2.2, 2.5),
    "decode-4090": ("Published tokens/s of an 8B Llama in 4 bits on an RTX 4090 against an RTX 3090, llama.cpp",
                    published_by_gpu["rtx-4090"] / published_by_gpu["rtx-3090"], 1.05, 1.4),
    "bandwidth-h100": ("Memory bandwidth of an H100 SXM against an A100 SXM of 80 GB", times(A100, H100, "bandwidth"),
                       1.6, 1.7),
    "half-h100": ("Peak of 16-bit products of an H100 SXM against an A100 SXM", H100.half / A100.half, 3, 3.3),
})

# %% [markdown]
# ## Training: matrix throughput
#
# LoRA on an 8B Llama, one sequence of 2,048 tokens, activation checkpointing, on every GPU of
# the table that the prediction knows. Where 16-bit weights do not fit, QLoRA is what remains.
# *May fit*: what is expected fits, and the upper end of the band does not.
#
# *Rows* counts published measurements on a GPU. Where there are none, nobody has compared the
# prediction with that GPU, and its error is that of a family of GPUs that was not fitted.

# %%
LORA = dict(rank=16, targets="all linear", checkpointing=1)
METHODS = {"lora": LORA, "qlora": LORA | {"four_bit": True}}


def known(row):
    """Whether a time can be predicted for this accelerator."""
    try:
        return bool(processor(row.key)) and bool(row.get("memory"))
    except ValueError:
        return False

# %% [markdown]
# A step fits by the upper end of what it needs. Weights in 4 bits need room beside them for a
# CUDA context and buffers.

# %%
from collections import Counter

NO = "does not fit"
WEIGHTS_4 = 4.9e9  # bytes of an 8B Llama as Q4_K_M, and of the cache of a short prompt
LEAST, RESERVE = 0.7 * GiB, 2 * GiB  # for the CUDA context and buffers: at least, and to be sure
GPU_OF = {row["id"]: row["gpu"] for row in ROWS}
PUBLISHED = Counter(GPU_OF[one.id] for one in judged.read())


def trained(gpu, name):
    """Tokens per second of a step, whether it fits, by the upper end of what it needs, and whether it waits."""
    now = answer(Workload("llama3-8b", 1, 2048, **METHODS[name]), Setting(gpu=gpu))
    said = "fits" if now.fits else "may fit" if now.needed.expected <= usable(gpu) else NO
    if said == NO:
        return {name: NO, f"{name}-fits": ""}
    waits = "" if now.prediction.sure else ", waits for its CPU"
    return {name: now.prediction.tokens_per_second, f"{name}-fits": said + waits}


def answering(gpu):
    """Tokens per second of llama.cpp as it is today, in CUDA graphs, in the middle of an answer of 1,024 tokens."""
    asked = Generation("llama3-8b", prompt=512, new=1024, weights="q4_k_m")
    if (served := serve(asked, Cluster(gpu))).unpredicted:
        return "unknown"
    room = usable(gpu) - WEIGHTS_4
    return 1 / served.decode.seconds if room >= RESERVE else "may fit" if room >= LEAST else NO


# %% [markdown]
# The fastest come first.

# %%
def order(row):
    fast = row["qlora"] if row["qlora"] != NO else row["decode"] if isinstance(row["decode"], float) else 0
    return row["lora"] == NO, row["qlora"] == NO, -fast


everywhere = [{"gpu": row.label, "decode": answering(row.key), "rows": PUBLISHED[row.key]}
              | trained(row.key, "lora") | trained(row.key, "qlora") for row in PRODUCTS if known(row)]
everywhere.sort(key=order)
table("everywhere", "An 8B Llama on one GPU: decoding in 4 bits, and fine-tuning, 1 x 2,048 tokens, checkpointing",
      {"gpu": "GPU", "decode": "Decode, tokens/s", "lora": "LoRA, tokens/s", "lora-fits": "LoRA",
       "qlora": "QLoRA, tokens/s", "qlora-fits": "QLoRA", "rows": "Published rows"}, everywhere, kind="predicted")
for name, klass in (("decode", "decode"), ("lora", "LoRA"), ("qlora", "QLoRA")):
    soonest, latest = timing.band(klass)  # of seconds
    for side, value in (("low", 1 / latest), ("high", 1 / soonest)):
        claim(f"band-{name}-{side}", f"The {side} end of a predicted speed of the class {klass}, of the prediction",
              value, "x", kind="derived", at_least=0.3, at_most=3)

# %% [markdown]
# The chart shows sixteen of them.

# %%
CHOSEN = ("t4", "rtx-3060-12", "rtx-4060ti-16", "rtx-3090", "rtx-4090", "rtx-5090", "l4", "a10g", "rtx-a6000", "l40s",
          "rtx-pro-6000-bw", "a100-sxm4-40", "a100-sxm4-80", "h100-sxm5", "h200-sxm", "b200-hgx")
by_label = {row["gpu"]: row for row in everywhere}
chosen = sorted(((accelerator(gpu).label, by_label[accelerator(gpu).label]["qlora"]) for gpu in CHOSEN),
                key=lambda pair: pair[1] if pair[1] != NO else 0)
table("chosen", "QLoRA of an 8B Llama on one GPU, 1 x 2,048 tokens, checkpointing",
      {"gpu": "GPU", "qlora": "QLoRA, tokens/s"},
      [{"gpu": gpu, "qlora": rate} for gpu, rate in chosen[::-1] if rate != NO], kind="predicted")

# %% [markdown]
# ## An H100 or an A100?
#
# The ratio of the prices decides, against the ratio of the speeds. Decoding one prompt gains
# by the bandwidth. Training gains by less than the peak, because the H100 reaches less of
# its own. MosaicML measured the same models with the same batch on both.

# %%
def key_of(row):
    return tuple(row[name] for name in ("model", "batch", "seq", "checkpointing", "accumulation", "gpus"))


both = {}
for row in ROWS:
    if row["source"] == "mosaicml/llm-foundry" and row["precision"] == "bf16" and row["kind"] == "train":
        both.setdefault(key_of(row), {})[row["gpu"]] = row["seconds"]
pairs = [of["a100-sxm4-80"] / of["h100-sxm5"] for of in both.values() if {"a100-sxm4-80", "h100-sxm5"} <= set(of)]
FOUNDRY = next(row["url"] for row in ROWS if row["source"] == "mosaicml/llm-foundry")
claim("h100-pairs", "Pairs of published training steps, one on H100s and one on A100s, alike in all else", len(pairs),
      "", kind="derived", at_least=15, at_most=200)
claim("h100-training", "Published training speed of H100 against A100, median of MosaicML's pairs",
      statistics.median(pairs), "x", kind="cited", source=FOUNDRY)
tenths = statistics.quantiles(pairs, n=10)
for name, value, side in (("h100-least", tenths[0], "least"), ("h100-most", tenths[-1], "most")):
    claim(name, f"Published training speed of H100 against A100, the {side} of the middle eight tenths of MosaicML's "
          "pairs", value, "x", kind="cited", source=FOUNDRY)

# %% [markdown]
# ## Two small GPUs, or one big?
#
# Two GPUs have two memories. A 70B Llama in 4 bits does not fit on an RTX 3090, and fits on two:
# each holds half of the layers, and they work in turn. So two of them decode no faster than one
# GPU of that bandwidth that holds all layers.

# %%
SEVENTY = [row for row in ROWS if row["source"] == AUTHOR and row["model"] == "llama3-70b" and row["gpus"] in (1, 2)
           and row["precision"] == "q4_k_m" and row["kind"] == "decode" and row["seq"] == 512]


def counted(row):
    name = accelerator(row["gpu"]).label
    return name if row["gpus"] == 1 else f"{row['gpus']} x {name}"


table("seventy", "Decoding a 70B Llama in 4 bits, one prompt, llama.cpp, May 2024",
      {"gpu": "GPUs", "bandwidth": "Bandwidth of one, GB/s", "rate": "Published, tokens/s"},
      [{"gpu": counted(row), "bandwidth": accelerator(row["gpu"]).get("bandwidth"), "rate": row["value"]}
       for row in sorted(SEVENTY, key=lambda row: row["value"])], kind="cited", source=SEVENTY[0]["url"])

# %% [markdown]
# Training with DDP does use both at once. What it sends is small for LoRA and large for full
# fine-tuning, and the link decides: NVLink, or PCIe with sixteen or eight lanes.

# %%
ONE = Workload("llama3-8b", 1, 2048, **LORA)


def pair(gpu, count):
    setting = Setting(gpu=gpu, gpus=count, gpus_per_node=count, strategy="ddp" if count > 1 else "")
    now = answer(ONE, setting)
    return {"gpus": f"{count} x {accelerator(gpu).label}" if count > 1 else accelerator(gpu).label,
            "memory": count * accelerator(gpu).get("memory"), "power": count * accelerator(gpu).get("tdp"),
            "rate": now.prediction.tokens_per_second}


TWO = (("rtx-3090", 1), ("rtx-3090", 2), ("rtx-4090", 1), ("rtx-4090", 2), ("rtx-5090", 1), ("rtx-a6000", 1))
table("two", "LoRA of an 8B Llama, 1 x 2,048 tokens a GPU, checkpointing, DDP on two",
      {"gpus": "GPUs", "memory": "Memory in all, GB", "power": "Board power, W", "rate": "LoRA, tokens/s"},
      [pair(*each) for each in TWO], kind="predicted")

# %% [markdown]
# ## PCIe
#
# A lane of generation 3 signals 8 billion bits per second, and each later generation twice as
# many. Up to generation 5, of 130 bits 128 are data. So in one direction:
#
# *GB/s = lanes x GT/s x 128 / 130 / 8.*

# %%
WEIGHTS = 8.03e9 * 2  # bytes of an 8B Llama in 16 bits


def pcie(generation, lanes):
    """Bytes per second in one direction."""
    return lanes * 2 ** (generation - 3) * 8e9 * 128 / 130 / 8


assert abs(pcie(4, 16) / hardware.bytes_per_second("PCIe 4 x16") - 1) < 0.01  # the table agrees
table("pcie", "PCIe in one direction, and the time for the 16-bit weights of an 8B model",
      {"link": "Link", "x16": "x16, GB/s", "x8": "x8, GB/s", "x4": "x4, GB/s", "load": "8B weights over x16, s"},
      [{"link": f"PCIe {generation}", "load": WEIGHTS / pcie(generation, 16)}
       | {f"x{lanes}": pcie(generation, lanes) / 1e9 for lanes in (16, 8, 4)} for generation in (3, 4, 5)],
      kind="derived")


def all_reduce(bytes_, rate, ranks=2):
    return 2 * (ranks - 1) / ranks * bytes_ / rate


BRIDGE = hardware.bytes_per_second("NVLink bridge, RTX 3090")
derived("s", {
    "reduce-x16": ("All-reduce of 16-bit gradients of an 8B model between two GPUs, PCIe 4 x16 at its peak",
                   all_reduce(WEIGHTS, pcie(4, 16)), 0.4, 0.6),
    "reduce-x8": ("All-reduce of 16-bit gradients of an 8B model between two GPUs, PCIe 4 x8 at its peak",
                  all_reduce(WEIGHTS, pcie(4, 8)), 0.9, 1.2),
    "reduce-bridge": ("All-reduce of 16-bit gradients of an 8B model between two RTX 3090, NVLink bridge at its peak",
                      all_reduce(WEIGHTS, BRIDGE), 0.2, 0.4),
})

# %% [markdown]
# ## fp8
#
# fp8 has half as many bits as bf16, and on GPUs that have it a product a higher peak.

# %%
table("fp8", "Peaks of products, dense: fp8 against 16 bits",
      {"gpu": "GPU", "half": "16-bit, TFLOP/s", "fp8": "fp8, TFLOP/s"},
      [{"gpu": accelerator(gpu).label, "half": accelerator(gpu).half, "fp8": accelerator(gpu).get("fp8") or "none"}
       for gpu in ("rtx-3090", "a100-sxm4-80", "rtx-4090", "l4", "l40s", "h100-sxm5", "b200-hgx")], kind="derived")

# %% [markdown]
# ## Power
#
# Board power is what a GPU may draw for long. For microseconds it draws more.

# %%
derived("W", {
    "power-3090s": ("Board power of two RTX 3090", 2 * accelerator("rtx-3090").get("tdp"), 650, 750),
    "power-4090": ("Board power of one RTX 4090", accelerator("rtx-4090").get("tdp"), 400, 500),
})
derived("%", {"power-cut": ("Power that a limit of 280 W takes off an RTX 3090",
                            100 * (1 - 280 / accelerator("rtx-3090").get("tdp")), 15, 25)})

# %% [markdown]
# ## Accelerators that are not by NVIDIA
#
# Published beside a known GPU, by one author each. llama.cpp on Apple silicon, with the
# workload of the first section; and MLPerf Training 5.0, LoRA of a 70B Llama on eight
# accelerators, the best submission of each kind.

# %%
APPLE = {"M1 Max, 32 GPU cores": 34.49, "M2 Ultra, 76 GPU cores": 76.28, "M3 Max, 40 GPU cores": 50.74}
KNOWN = {accelerator(gpu).label: published_by_gpu[gpu] for gpu in ("rtx-3070", "rtx-3090", "rtx-4090")}
table("apple", "Decoding an 8B Llama in 4 bits, one prompt, llama.cpp, May 2024",
      {"chip": "Chip", "rate": "Published, tokens/s"},
      [{"chip": chip, "rate": rate} for chip, rate in sorted((APPLE | KNOWN).items(), key=lambda pair: pair[1])],
      kind="cited", source="https://github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference")
best = {}
for row in ROWS:
    if row["source"] == "mlcommons/training_results_v5.0" and row["model"] == "llama2-70b" and row["gpus"] == 8:
        best[row["gpu"]] = max(best.get(row["gpu"], 0), row["value"])
table("mlperf", "MLPerf Training 5.0, LoRA of Llama 2 70B in fp8 on eight accelerators, best submission",
      {"gpu": "Eight of", "rate": "Published, samples/s"},
      [{"gpu": accelerator(gpu).label, "rate": best[gpu]} for gpu in sorted(best, key=best.get)], kind="cited",
      source="https://github.com/mlcommons/training_results_v5.0")

# %%
AO, AO_B200 = (next(row for row in ROWS if row["source"] == "pytorch/ao" and row["gpu"] == gpu and row["seq"] == 8192
                    and row["precision"] == "bf16") for gpu in ("mi300x", "b200-hgx"))
for name, sentence, value, unit, link in (
    ("mi300x-train", "Tokens/s of each MI300X in bf16 training of an 8B Llama, torchtitan, eight of them", AO["value"],
     "tokens/s", AO["url"]),
    ("b200-train", "Tokens/s of each B200, power limited, in bf16 training of an 8B Llama, torchtitan, eight of them",
     AO_B200["value"], "tokens/s", AO_B200["url"]),
):
    claim(name, sentence, value, unit, kind="cited", source=link)

# %% [markdown]
# ## This machine
#
# The micro-benchmark, as you run it by `dryrun bench`. A CPU has no row in the table
# of accelerators, so nothing stands beside it.

# %% tags=["measures"]
from dryrun.answer import bench

rates = {rate.name: rate for rate in bench.measure(seconds=3, disk=None)["rates"]}
table("bench", "Micro-benchmark of this machine, all cores, the best repeat",
      {"what": "What", "best": "Best", "sustained": "Sustained", "unit": "Unit"},
      [{"what": name, "best": rate.value, "sustained": rate.sustained, "unit": rate.unit}
       for name, rate in rates.items()], kind="measured")
product = rates.get("product bf16") or rates["product fp16"]
claim("bench-half", "Matrix products in 16 bits on this machine, the best repeat", product.value, "TFLOP/s",
      kind="measured", at_least=0.05)
claim("bench-copy", "Copies in memory of this machine, read and written", rates["memory copy"].value, "GB/s",
      kind="measured", at_least=1)

# %% [markdown]
# ## What came out, and what to do
#
# - **Memory first.** A GPU that does not hold the model is out, however fast it is.
# - **Bandwidth for answers, products for training.** Compare GPUs by the number that your work
#   needs.
# - **Two memories are not one.** Two GPUs serve a model in turn, or train copies of it.
# - **Measure yours**: `dryrun bench`, then predict with what it reached.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
