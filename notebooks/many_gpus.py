# ---
# jupyter:
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
# # Many GPUs: what each strategy holds and sends
#
# Rank 0 of 8 to 1,024 ranks, in one process and without a GPU: the real sharding code on fake tensors and a fake process
# group says what a rank holds and what it hands to each collective. Arithmetic turns the bytes into seconds on a link. The
# last part asks the plan that you can call for four examples.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability")
    needs = ["transformers==5.23.0", "accelerate==1.15.0", "matplotlib", f"performance-and-scalability @ {source}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)

# %%
import logging
import tempfile
import warnings

import matplotlib.pyplot as plt
import torch
from matplotlib_inline.backend_inline import set_matplotlib_formats

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

from transformers import AutoModelForCausalLM, LlamaConfig

from evidence.claims import claim, start, table
from evidence.launch import run_ranks
from dryrun.plan import AMPERE, LINKS, NETWORKS_MD, gpu, model, plan, seconds
from dryrun.ranks import many_layers, rank_step
from dryrun.trace import GiB

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "many_gpus"  # the same figure at every run
start("many_gpus")

# %% [markdown]
# ## Your own model
#
# Put your configuration and your number of ranks here. Nothing is downloaded but the configuration, if you name one of
# the hub by `AutoConfig.from_pretrained`.

# %%
mine = LlamaConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4)
step = rank_step(AutoModelForCausalLM, mine, "fsdp2", 64, 1, 512, activation_checkpointing=True)
print(f"rank 0 of {step.ranks}: peak {step.peak_gib:.2f} GiB, sends {step.sent() / 1e9:.2f} GB in a step")

# %% [markdown]
# ## Two models at 8 to 1,024 ranks
#
# One sequence of 4,096 tokens on each rank, activation checkpointing, fp32 weights that are computed with in bf16, gradients
# reduced in fp32, AdamW. The 8 ranks of a tensor-parallel group work on their 8 sequences together; "one sequence" is the
# same with one sequence for the group, an eighth of the work. Every layer adds the same, so a model of 2 and one of 3 layers
# give the lines that the deep one lies on: of 4 and 5 where the peak of two layers of the 70B model comes with the loss.
# `tests/dryrun/test_ranks.py` traces deep ones whole and compares.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False,
)
llama_70b = LlamaConfig(
    vocab_size=128256, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
    num_attention_heads=64, num_key_value_heads=8, tie_word_embeddings=False,
)
CONFIGS = {"8b": llama_8b, "70b": llama_70b}
RANKS = [8, 64, 1024]
GB = 1e9


def trace(size, strategy, ranks, batch, **options):
    layers = (4, 5) if size == "70b" and strategy in ("fsdp2", "hsdp") else (2, 3)
    return many_layers(AutoModelForCausalLM, CONFIGS[size], strategy, ranks, batch, 4096,
                       activation_checkpointing=True, layers=layers, **options)


SPLIT = {"tensor": 8, "sequence_parallel": True}
VARIANTS = {  # strategy, sequences of a rank or of a tensor-parallel group, options
    "fsdp2": ("fsdp2", 1, {}), "keep": ("fsdp2_keep", 1, {}), "hsdp": ("hsdp", 1, {"shard": 8}),
    "tp": ("tp_fsdp2", 8, SPLIT), "tp_one": ("tp_fsdp2", 1, SPLIT),
}
traced = {}
for size in CONFIGS:
    for name, (strategy, batch, options) in VARIANTS.items():
        for ranks in RANKS:
            if name == "hsdp" and ranks == 8:  # one group of 8 is FSDP2
                traced[size, name, ranks] = traced[size, "fsdp2", ranks]
            elif name != "keep" or (size, ranks) == ("8b", 8):
                traced[size, name, ranks] = trace(size, strategy, ranks, batch, **options)
ddp = trace("8b", "ddp", 8, 1)


def cell(size, name, ranks, what):
    return what(traced[size, name, ranks])


for size, label in (("8b", "Llama-8B class"), ("70b", "Llama-70B class")):
    table(
        f"memory-{size}", f"Peak memory of a rank against ranks, {label}, 1 x 4,096 tokens per rank, checkpointing, mixed bf16, AdamW",
        {"ranks": "Ranks", "fsdp2": "FSDP2, GiB", "hsdp": "HSDP in groups of 8, GiB", "tp": "TP 8 with sequence parallelism, and FSDP2, GiB",
         "tp_one": "The same, one sequence per group of 8, GiB"},
        [{"ranks": ranks} | {name: cell(size, name, ranks, lambda s: s.peak_gib) for name in ("fsdp2", "hsdp", "tp", "tp_one")} for ranks in RANKS],
        kind="traced",
    )
    table(
        f"sent-{size}", f"Bytes that a rank sends in a step against ranks, {label}, 1 x 4,096 tokens per rank",
        {"ranks": "Ranks", "fsdp2": "FSDP2, GB", "hsdp": "HSDP, GB", "hsdp_network": "of that between the groups, GB",
         "tp": "TP 8 and FSDP2, GB", "tp_tensor": "of that inside the TP group, GB", "tp_one": "TP 8 and FSDP2, one sequence per group, GB"},
        [{"ranks": ranks,
          "fsdp2": cell(size, "fsdp2", ranks, lambda s: s.sent() / GB),
          "hsdp": cell(size, "hsdp", ranks, lambda s: s.sent() / GB),
          "hsdp_network": cell(size, "hsdp", ranks, lambda s: s.sent(dimension="replicate") / GB),
          "tp": cell(size, "tp", ranks, lambda s: s.sent() / GB),
          "tp_tensor": cell(size, "tp", ranks, lambda s: s.sent(dimension="tensor") / GB),
          "tp_one": cell(size, "tp_one", ranks, lambda s: s.sent() / GB)} for ranks in RANKS],
        kind="traced",
    )

# %% alt="Two charts of peak memory against ranks on logarithmic axes: FSDP2 falls and flattens out, HSDP stays level. Tensor parallelism with FSDP2 flattens out high above FSDP2 for the same work, and lies lowest with one sequence per group."
figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), sharey=True)
COLORS = {"fsdp2": ("FSDP2", "#0072b2"), "hsdp": ("HSDP, groups of 8", "#c45500"), "tp": ("TP 8 and FSDP2", "#00805c"),
           "tp_one": ("the same, one sequence", "#9b4f96")}
for axis, (size, label) in zip(axes, (("8b", "8B"), ("70b", "70B"))):
    for name, (text, color) in COLORS.items():
        points = [(ranks, traced[size, name, ranks].peak_gib) for ranks in RANKS]
        axis.plot(*zip(*points), marker="o", color=color, label=text)
    axis.set(xscale="log", yscale="log", xlabel="ranks", title=label)
    axis.set_xticks(RANKS, [f"{ranks:,}" for ranks in RANKS])
    axis.minorticks_off()
axes[0].set_ylabel("peak of a rank, GiB")
axes[0].legend(frameon=False, fontsize=8)
plt.show()

# %%
f8, f64, f1024 = (traced["8b", "fsdp2", ranks] for ranks in (8, 64, 1024))
claim("ddp-peak", "Peak of a rank of 8, 8B Llama under DDP with default buckets, mixed bf16, 1 x 4,096 tokens, checkpointing",
      ddp.peak_gib, "GiB", kind="traced", at_least=148, at_most=151)
claim("ddp-buckets", "Gradient buckets beside the gradients in that step, which gradient_as_bucket_view=True saves",
      ddp.held["gradient buckets"] / GiB, "GiB", kind="traced", at_least=29.8, at_most=30)
claim("ddp-sent", "What a rank of 8 sends in that step", ddp.sent() / GB, "GB", kind="traced", at_least=56, at_most=56.5)
claim("fsdp2-peak-8", "The same step under FSDP2, 8 ranks", f8.peak_gib, "GiB", kind="traced", at_least=20, at_most=21)
claim("fsdp2-peak-1024", "The same step under FSDP2, 1,024 ranks", f1024.peak_gib, "GiB", kind="traced", at_least=9.2, at_most=9.7)
rest = sum(f1024.gib(category) for category in ("activations", "gathered weights", "temporaries"))
claim("fsdp2-rest", "Of that: activations, gathered layers and temporaries, which no number of ranks makes smaller",
      rest, "GiB", kind="traced", at_least=9.1, at_most=9.6)
claim("fsdp2-sent-8", "What a rank of 8 sends in a step of the 8B Llama under FSDP2", f8.sent() / GB, "GB", kind="traced", at_least=54, at_most=55)
claim("fsdp2-sent-1024", "The same, 1,024 ranks", f1024.sent() / GB, "GB", kind="traced", at_least=61.5, at_most=62.5)
keep = traced["8b", "keep", 8]
claim("keep-peak-8", "The 8B step under FSDP2 with reshard_after_forward=False, 8 ranks", keep.peak_gib, "GiB", kind="traced", at_least=32.5, at_most=34)
claim("keep-saving", "What reshard_after_forward=False saves of the bytes that a rank of 8 sends",
      100 * (1 - keep.sent() / f8.sent()), "%", kind="traced", at_least=21, at_most=24)
seventy = traced["70b", "fsdp2", 64]
claim("fsdp2-70b-8", "Peak of a rank of 8, 70B Llama under FSDP2, mixed bf16, 1 x 4,096 tokens, checkpointing",
      traced["70b", "fsdp2", 8].peak_gib, "GiB", kind="traced", at_least=143, at_most=146)
claim("fsdp2-70b-64", "The same, 64 ranks", seventy.peak_gib, "GiB", kind="traced", at_least=30, at_most=35)
claim("tp-70b-64", "The same, 64 ranks, TP 8 with sequence parallelism and FSDP2 over 8, one sequence per group of 8",
      traced["70b", "tp_one", 64].peak_gib, "GiB", kind="traced", at_least=19.2, at_most=20.2)
tp64 = traced["8b", "tp", 64]
claim("tp-peak-64", "Peak of a rank of 64, 8B Llama, TP 8 with sequence parallelism and FSDP2, 8 sequences of 4,096 tokens per group of 8, checkpointing",
      tp64.peak_gib, "GiB", kind="traced", at_least=49, at_most=51)
claim("fsdp2-peak-64", "Peak of a rank of 64, 8B Llama under FSDP2, 1 x 4,096 tokens, checkpointing", f64.peak_gib, "GiB", kind="traced", at_least=10.5, at_most=11)
claim("tp-sent-64", "What a rank of 64 sends in that step with TP 8 and FSDP2, against FSDP2 alone", tp64.sent() / f64.sent(), "x",
      kind="traced", at_least=1.55, at_most=1.65)
claim("tp-sent-70b", "What a rank of 64 sends in such a step of the 70B Llama with TP 8 and FSDP2, against FSDP2 alone", traced["70b", "tp", 64].sent() / seventy.sent(), "x", kind="traced", at_least=0.85, at_most=0.9)

# %% tags=["measures"]
from dryrun.ranks import many_layers

claim("trace-seconds", "Time to trace rank 0 of 1,024 of the 70B Llama under FSDP2 on this machine, by way of 4 and 5 of its layers",
      trace("70b", "fsdp2", 1024, 1).seconds, "s", kind="measured", at_most=300)

# %% [markdown]
# ## Against the closed formulas
#
# N parameters, of which R are embedding and output layer; W ranks; L layers; activations of A bytes.

# %%
N, R = ddp.parameters, 2 * 128256 * 4096
A = 2 * 4096 * 4096  # one sequence of 4,096 tokens, hidden size 4,096, bf16
hsdp, tp = traced["8b", "hsdp", 64], tp64
plain_tp = many_layers(AutoModelForCausalLM, llama_8b, "tp", 8, 1, 4096, layers=(2, 3), dtype=torch.bfloat16)
ROWS = [
    ("DDP, 8 ranks", "all-reduce", ddp.count("all-reduce"), ddp.payload("all-reduce"), "4N", 4 * N),
    ("FSDP2, 64 ranks", "all-gather", f64.count("all-gather"), f64.payload("all-gather"), "2(2(N - R) + R)", 2 * (2 * (N - R) + R)),
    ("FSDP2, 64 ranks", "reduce-scatter", f64.count("reduce-scatter"), f64.payload("reduce-scatter"), "4N", 4 * N),
    ("HSDP, 8 groups of 8", "all-reduce", hsdp.count("all-reduce"), hsdp.payload("all-reduce"), "4N/8", 4 * N / 8),
    ("TP 8, without checkpointing", "all-reduce", plain_tp.count("all-reduce"), plain_tp.payload("all-reduce"), "(4L + 2)A", (4 * 32 + 2) * A),
    ("TP 8 and FSDP2, 64 ranks", "all-gather of weights", tp.count("all-gather", "shard"), tp.payload("all-gather", "shard"), "2(2(N - R) + R)/8",
     2 * (2 * (N - R) + R) / 8),
]
table(
    "collectives", "Collectives of one step, 8B Llama, traced and by formula: bytes of the whole tensors",
    {"strategy": "Strategy", "collective": "Collective", "count": "Calls", "traced": "Traced, GB", "formula": "Formula, bytes", "expected": "By formula, GB"},
    [dict(zip(("strategy", "collective", "count", "traced", "formula", "expected"), (s, c, n, t / GB, f, e / GB))) for s, c, n, t, f, e in ROWS],
    kind="traced",
)
claim("formula-error", "Largest difference between traced bytes and the closed formulas in this table",
      100 * max(abs(t / e - 1) for *_, t, _, e in ROWS), "%", kind="traced", at_most=1)
checkpointed_tp = many_layers(AutoModelForCausalLM, llama_8b, "tp", 8, 1, 4096, layers=(2, 3), dtype=torch.bfloat16, activation_checkpointing=True)
claim("tp-recompute", "What activation checkpointing adds to the bytes that tensor parallelism all-reduces in a step of the 8B Llama",
      100 * (checkpointed_tp.payload("all-reduce") / plain_tp.payload("all-reduce") - 1), "%", kind="traced", at_least=20, at_most=30)
claim("tp-sent", "What a rank of 8 sends in a step of the 8B Llama under tensor parallelism, one sequence of 4,096 tokens, bf16, checkpointing",
      checkpointed_tp.sent() / GB, "GB", kind="traced", at_least=10.2, at_most=10.6)
claim("tp-sp-sent", "The same with sequence parallelism", traced["8b", "tp_one", 8].sent() / GB, "GB", kind="traced", at_least=11.2, at_most=11.5)

# %% [markdown]
# ## Seconds on a link
#
# Bytes that a rank sends, over the peak of the link in one direction. ZeRO-1 and ZeRO-2 are DeepSpeed's own code, which we do not
# trace. With its defaults it all-reduces the gradients in 16 bits and gathers the weights in 16 bits, which the tests count on two
# processes. Links: the table in `dryrun/data/links.json` with its sources.

# %%
W8 = 7 / 8
SENT = {"DDP": ddp.sent(), "ZeRO-1 and 2": W8 * (2 * 2 + 2) * N, "FSDP2": f8.sent(), "TP": checkpointed_tp.sent()}
NAMES = ["PCIe 3 x16", "PCIe 4 x16", "PCIe 5 x16", "NVLink 2", "NVLink 3", "NVLink 4", "NVLink 5", "10 GbE", "100 GbE", "InfiniBand HDR", "InfiniBand NDR"]
table(
    "links", "Seconds at the peak of the link, step of the 8B Llama on 8 ranks, 1 x 4,096 tokens per rank",
    {"link": "Link", "peak": "Peak, GB/s", "ddp": "DDP, s", "zero": "ZeRO-1 and 2, s", "fsdp2": "FSDP2, s", "tp": "TP, s per sequence"},
    [{"link": name, "peak": LINKS[name][0]} | {key: seconds(SENT[column], name) for key, column in
      (("ddp", "DDP"), ("zero", "ZeRO-1 and 2"), ("fsdp2", "FSDP2"), ("tp", "TP"))} for name in NAMES],
    kind="derived",
)
claim("zero-sent", "What a rank of 8 sends in that step under ZeRO-1 or ZeRO-2 with DeepSpeed's defaults, one micro-batch", SENT["ZeRO-1 and 2"] / GB, "GB",
      kind="derived", at_least=42, at_most=42.5)
claim("compute-seconds", "The computation of that step on an A100 at 40 % of its peak, 8 FLOPs per parameter and token with checkpointing",
      8 * N * 4096 / (312e12 * 0.4), "s", kind="derived", source=AMPERE, at_least=2, at_most=2.2)
claim("fsdp2-10gbe", "FSDP2's bytes of that step over 10 GbE", seconds(SENT["FSDP2"], "10 GbE"), "s", kind="derived", at_least=43, at_most=44)
claim("nvlink-seen", "All-reduce of 8 A100 over NVLink 3, in one direction", 235, "GB/s", kind="cited", source=NETWORKS_MD)

# %% [markdown]
# ## Your link
#
# On a machine with two GPUs or more, this measures what all-reduce gets.

# %% tags=["measures"]
os.chdir(tempfile.mkdtemp())  # where the program goes

# %% tags=["measures"]
# %%writefile link.py
import os, time, torch, torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
data = torch.ones(2**28, device="cuda")
seconds = []
for _ in range(8):
    dist.barrier()
    torch.cuda.synchronize()
    started = time.perf_counter()
    dist.all_reduce(data)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - started)
ranks = dist.get_world_size()
if rank == 0:
    print(2 * (ranks - 1) / ranks * data.numel() * 4 / min(seconds[3:]) / 1e9)
dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
gpus = torch.cuda.device_count()
bandwidth = float(run_ranks("link.py", processes=gpus).stdout[0].split()[-1]) if gpus >= 2 else None
claim("link-bandwidth", "Bandwidth of an all-reduce of 1 GiB over all GPUs of this machine", bandwidth, "GB/s", kind="measured",
      at_least=0.5, at_most=1000, because="this machine has fewer than two GPUs")

# %% [markdown]
# ## The model of time, and what others measured

# %%
TITAN = "https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/benchmarks/llama3_h100_202412_torchtitan.md"
claim("titan-8", "Tokens per second and GPU, Llama 3.1 8B, FSDP2 in bf16, 8 H100, torchtitan", 5762, "tokens/s", kind="cited", source=TITAN)
claim("titan-128", "Tokens per second and GPU, Llama 3.1 8B, FSDP2 in bf16, torchtitan, on 128 H100 with one 400 Gb/s adapter for each", 5605, "tokens/s", kind="cited", source=TITAN)
claim("titan-kept", "Throughput of an H100 among 128 against one among 8, Llama 3.1 8B, FSDP2, by torchtitan's figures", 100 * 5605 / 5762, "%", kind="derived", source=TITAN, at_least=97, at_most=97.5)
H100 = {"memory_gb": 96, "tflops": 989.5, "link": "NVLink 4"}
titan_work = {"tokens": 16384, "utilization": 0.33, "checkpointing": False}


def fsdp2(**where):
    return next(option for option in plan(**model("llama-8b"), **H100, **titan_work, **where) if option.strategy.startswith("FSDP2 ("))


titan = fsdp2(gpus=128, nodes=16, network="InfiniBand NDR", adapters=8)
one_node = fsdp2(gpus=8)
claim("titan-predicted-low", "The same by our model, when nothing overlaps", 100 * one_node.seconds / titan.seconds, "%",
      kind="derived", at_least=97, at_most=100)
claim("titan-predicted-100gbe", "By our model without overlap, if each of these nodes had one 100 GbE adapter",
      100 * one_node.seconds / fsdp2(gpus=128, nodes=16, network="100 GbE").seconds, "%", kind="derived", at_least=30, at_most=42)

TINY = "https://github.com/whyNLP/tinyllama/issues/1"
claim("tiny-one", "TinyLlama 1.1B, one RTX 4090, 4 micro-batches a step, as a user reports", 1.8, "thousand tokens/s", kind="cited", source=TINY)
claim("tiny-two", "TinyLlama 1.1B, as the same user reports, DDP on two RTX 4090, 1 micro-batch a step", 1.5, "thousand tokens/s", kind="cited", source=TINY)
claim("tiny-four", "TinyLlama 1.1B, as the same user reports, DDP on two RTX 4090, 4 micro-batches a step", 2.7, "thousand tokens/s", kind="cited", source=TINY)
share = 1.5 / (2 * 1.8)  # of its time that a GPU computes, with one micro-batch a step
communication = 1 / share - 1  # per unit of computation
claim("tiny-predicted", "Throughput of TinyLlama on two RTX 4090 with 4 micro-batches a step that the model predicts from one GPU and from 1 micro-batch",
      2 * 1.8 / (1 + communication / 4), "thousand tokens/s", kind="derived", source=TINY, at_least=2.6, at_most=2.75)

HISTORY = "https://github.com/huggingface/transformers/blob/032b32abfb07ba36e8fc1a8e5251514523edce34/docs/source/en/perf_train_gpu_many.md"
RUNS = [("1 GPU", 102.0, "left out", 1), ("2, DataParallel, NVLink", 110.5948, 1.808, 2), ("2, DDP, NVLink", 101.9003, 1.963, 2),
        ("2, DDP, NCCL_P2P_DISABLE=1", 131.4367, 1.522, 2)]
table(
    "titan-rtx", "GPT-2 on TITAN RTX in January 2021, 200 steps of 4 sequences per GPU; the first row is from issue 9371 alone",
    {"setting": "Setting", "runtime": "Run time, s", "printed": "Printed as samples per second"},
    [{"setting": setting, "runtime": runtime, "printed": printed} for setting, runtime, printed, _ in RUNS],
    kind="cited", source=HISTORY,
)
table(
    "titan-rtx-rates", "The rates that follow: 200 steps, and 800 sequences per GPU, over the run time",
    {"setting": "Setting", "steps": "Steps/s", "samples": "Samples/s"},
    [{"setting": setting, "steps": 200 / runtime, "samples": 200 * 4 * number / runtime} for setting, runtime, _, number in RUNS],
    kind="derived", source=HISTORY,
)
effective = seconds(4 * model("gpt2")["parameters"], "PCIe 3 x16") * LINKS["PCIe 3 x16"][0] / ((131.4367 - 101.9003) / 200)
claim("titan-rtx-link", "Bandwidth that explains the difference between the two DDP runs of GPT-2 on TITAN RTX, if nothing overlapped", effective, "GB/s",
      kind="derived", source=HISTORY, at_least=3, at_most=4)

# %% [markdown]
# ## Four examples, from the plan that you can call

# %%
COLUMNS = {"strategy": "Strategy", "memory": "On a GPU, GB", "fits": "Fits", "sends": "Sends, s", "computes": "Computes, s", "low": "Efficiency, %, no overlap", "high": "Full overlap, %"}


def rows(options):
    return [{"strategy": o.strategy, "memory": o.total / GB, "fits": "yes" if o.fits else "no", "sends": o.seconds_communication,
             "computes": o.seconds_compute, "low": 100 * o.efficiency[0], "high": 100 * o.efficiency[1]} for o in options]


EXAMPLES = {
    "plan-7b": ("Llama 7B on 8 x A100 40GB with NVLink, 4,096 tokens per GPU, without activations",
                plan(**model("llama-7b"), **gpu("A100 40GB"), gpus=8)),
    "plan-70b": ("Llama 70B on 4 x RTX 4090, PCIe 4, 4,096 tokens per GPU, without activations",
                 plan(**model("llama-70b"), **gpu("RTX 4090 24GB"), gpus=4)),
    "plan-72b": ("Qwen 72B on 2 nodes of 8 x A100 40GB, one 100 GbE adapter in each, 4,096 tokens per GPU, without activations",
                 plan(**model("qwen-72b"), **gpu("A100 40GB"), gpus=16, nodes=2, network="100 GbE")),
    "plan-two": ("Llama 1B on 2 x RTX 4090, PCIe 4, 4 micro-batches of 2,048 tokens, without activations",
                 plan(**model("llama-1b"), **gpu("RTX 4090 24GB"), gpus=2, tokens=2048, micro_batches=4)),
}
for name, (title, options) in EXAMPLES.items():
    table(name, title, COLUMNS, rows(options), kind="derived")


def picked(name, strategy):
    return next(option for option in EXAMPLES[name][1] if option.strategy == strategy)


claim("seven-one", "Weights, gradients and AdamW state of a 7B Llama on one GPU, mixed precision", 16 * model("llama-7b")["parameters"] / GB, "GB",
      kind="derived", at_least=107, at_most=108.5)
claim("seven-zero2", "The same on 8 GPUs under ZeRO-2", picked("plan-7b", "ZeRO-2").total / GB, "GB", kind="derived", at_least=28, at_most=29)
claim("seven-zero1-paper", "Llama 7B on 8 GPUs under ZeRO-1, 2 + 2 + 12/8 bytes per parameter", (2 + 2 + 12 / 8) * model("llama-7b")["parameters"] / GB, "GB",
      kind="derived", at_least=36.9, at_most=37.2)
claim("seven-zero2-paper", "The same under ZeRO-2, 2 + 14/8 bytes per parameter", (2 + 14 / 8) * model("llama-7b")["parameters"] / GB, "GB",
      kind="derived", at_least=25.1, at_most=25.4)
claim("seventy-qlora", "QLoRA of a 70B Llama in parts on 4 GPUs, before activations", picked("plan-70b", "QLoRA, sharded").total / GB, "GB",
      kind="derived", at_least=19, at_most=21)
claim("two-bucket-cost", "What DDP's buckets add on each GPU for the 1B Llama", (picked("plan-two", "DDP").total - picked("plan-two", "DDP, bucket views").total) / GB,
      "GB", kind="derived", at_least=4.9, at_most=5)

# %% [markdown]
# ## Slow links: why adding nodes makes it worse
#
# Full fine-tuning of a 72B model with everything on the GPUs, to see the network alone: 8 x H200 in a node, pure bf16, micro-batches
# of 4,096 tokens per GPU, one 100 GbE adapter in each node.

# %%
def slow(nodes, strategy, network="100 GbE", **work):
    where = {"nodes": nodes, "network": network} if nodes > 1 else {}
    options = plan(**model("qwen-72b"), **gpu("H200 141GB"), gpus=8 * nodes, precision="bf16", **where, **work)
    one = nodes == 1 and strategy == "HSDP"  # on one node it is FSDP2
    return next(option for option in options if option.strategy == ("FSDP2 (ZeRO-3)" if one else strategy))


def samples(option, nodes, micro_batches):
    return 8 * nodes * micro_batches * 4096 / option.seconds_overlapped


NODES = [1, 2, 4, 8]
table(
    "slow-nodes", "Tokens per second of all nodes together, Qwen 72B, full overlap, one 100 GbE adapter per node",
    {"nodes": "Nodes of 8 x H200", "fsdp1": "FSDP2, 1 micro-batch, tokens/s", "hsdp1": "HSDP, 1 micro-batch, tokens/s",
     "fsdp8": "FSDP2, 8 micro-batches, tokens/s", "hsdp8": "HSDP, 8 micro-batches, tokens/s"},
    [{"nodes": nodes} | {key: samples(slow(nodes, strategy, micro_batches=m), nodes, m) for key, strategy, m in
      (("fsdp1", "FSDP2 (ZeRO-3)", 1), ("hsdp1", "HSDP", 1), ("fsdp8", "FSDP2 (ZeRO-3)", 8), ("hsdp8", "HSDP", 8))} for nodes in NODES],
    kind="derived",
)
claim("slow-fsdp2", "Seconds that FSDP2's bytes take over the border of a node, 2 nodes, 1 micro-batch", slow(2, "FSDP2 (ZeRO-3)").seconds_network, "s",
      kind="derived", at_least=31, at_most=33)
claim("slow-compute", "The computation of this step", slow(2, "FSDP2 (ZeRO-3)").seconds_compute, "s", kind="derived", at_least=5.5, at_most=6.5)
claim("slow-hsdp-1", "What HSDP saves of the bytes over the border, 8 nodes, 1 micro-batch",
      100 * (1 - slow(8, "HSDP").sent_network / slow(8, "FSDP2 (ZeRO-3)").sent_network), "%", kind="derived", at_least=38, at_most=45)
claim("slow-hsdp-8", "The same with 8 micro-batches in a step",
      100 * (1 - slow(8, "HSDP", micro_batches=8).sent_network / slow(8, "FSDP2 (ZeRO-3)", micro_batches=8).sent_network), "%",
      kind="derived", at_least=90, at_most=95)
claim("slow-10gbe", "FSDP2's seconds over the border on 10 GbE, 2 nodes, 1 micro-batch", slow(2, "FSDP2 (ZeRO-3)", "10 GbE").seconds_network, "s",
      kind="derived", at_least=310, at_most=330)
