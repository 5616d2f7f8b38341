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
# # Splitting the model: tensor, sequence, context, pipeline, expert parallelism
#
# Two processes on this machine train a small Llama in each way, and must give the losses of one process. What each way
# sends is counted in these runs and compared with the closed formula. At full size, one rank of eight is traced on fake
# tensors, which needs no GPU. Pipeline schedules are played through, action by action. Times are bytes over the peak of a
# link; a real link gives less.

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
import json
import logging
import tempfile
import warnings
from pathlib import Path

logging.disable(logging.WARNING)  # what packages say at import
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, LlamaConfig

from evidence.claims import claim, start, table
from evidence.launch import run_ranks
from dryrun.plan import GPUS, LINKS
from dryrun.ranks import rank_step
from dryrun.trace import GiB, training_step

set_matplotlib_formats("svg")
plt.rcParams["svg.hashsalt"] = "model_parallelism"  # the same figure at every run
BF16 = torch.bfloat16
os.chdir(tempfile.mkdtemp())  # where the programs go
start("model_parallelism")

# %% [markdown]
# ## Two processes give the losses of one
#
# Each strategy makes four steps of SGD from the same weights and the same tokens. SGD on purpose: Adam divides by the size
# of the gradient, and would hide a gradient that is twice too large. A tracker counts the collectives of a step.

# %% tags=["measures"]
# %%writefile strategies.py
import contextlib
import json
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from dryrun.ranks import RankTracker

disable_progress_bar()
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
SMALL = {"vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False}
MOE = Qwen3MoeConfig(**SMALL, num_hidden_layers=4, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2, head_dim=16)
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1))
labels = F.pad(ids[:, 1:], (0, 1), value=-100)


def llama(layers=4, attention="sdpa"):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, intermediate_size=128, num_hidden_layers=layers, attn_implementation=attention))


def moe():
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(MOE)


def train(model, loss_of, steps=4, after=lambda model: None):
    """Losses of the steps, and {kind: [count, bytes]} of the collectives in forward and backward pass of the second."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses, sent = [], {}
    for step in range(steps):
        counted = step == min(1, steps - 1)
        tracker = RankTracker(model, optimizer) if counted else contextlib.nullcontext()
        with tracker:
            loss = loss_of(model)
            loss.backward()
        if counted:
            sent = {c.kind: [c.count, c.payload] for c in tracker.collectives.values()}
        after(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "sent": sent}


def whole_batch(model):
    return model(input_ids=ids, labels=ids).loss


def from_checkpoint(model, folder, **sizes):
    if rank == 0:
        model.save_pretrained(folder)
    dist.barrier()
    return type(model).from_pretrained(folder, distributed_config=DistributedConfig(**sizes))


def parallelized(layers=4, between=Replicate(), prepare=True):
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {
        "self_attn.o_proj": RowwiseParallel(output_layouts=between), "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(output_layouts=between)}
    outside = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
               "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Replicate())}
    if prepare:
        plan |= {"self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": between},
                                                 desired_input_kwarg_layouts={"hidden_states": Replicate()}),
                 "mlp": PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))}
    if between == Shard(1):
        plan |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
        outside["model.norm"] = SequenceParallel()
    return parallelize_module(llama(layers), mesh, outside | {f"model.layers.*.{name}": style for name, style in plan.items()})


def all_positions(model):
    return model(input_ids=ids, position_ids=torch.arange(32)[None], labels=ids).loss


class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, step):
        ctx.step, tensor = step, tensor.contiguous()
        received = torch.empty_like(tensor)
        exchange = [dist.P2POp(dist.isend, tensor, (rank + step) % size), dist.P2POp(dist.irecv, received, (rank - step) % size)]
        for request in dist.batch_isend_irecv(exchange):
            request.wait()
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Rotate.apply(gradient, -ctx.step), None


def ring(module, query, key, value, attention_mask, scaling, **kwargs):
    tokens, kept = torch.arange(query.size(2)), torch.stack([key, value])
    highest, total, output = query.new_full((*query.shape[:3], 1), -torch.inf), 0, 0
    for step in range(size):
        owner = (rank - step) % size
        k, v = kept.repeat_interleave(query.size(1) // key.size(1), 2)
        later = owner * len(tokens) + tokens > (rank * len(tokens) + tokens)[:, None]
        scores = (query @ k.transpose(2, 3) * scaling).masked_fill(later, -torch.inf)
        before, highest = highest, torch.maximum(highest, scores.detach().amax(-1, keepdim=True))
        weights, rescale = torch.exp(scores - highest), torch.exp(before - highest)
        total, output = total * rescale + weights.sum(-1, keepdim=True), output * rescale + weights @ v
        if step < size - 1:
            kept = Rotate.apply(kept, 1)
    return (output / total).transpose(1, 2), None


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, give, take):
        ctx.give, ctx.take = give, take
        parts = torch.stack(tensor.chunk(size, give))
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts)
        return torch.cat(received.unbind(), take)

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.apply(gradient, ctx.take, ctx.give), None, None


def ulysses(module, query, key, value, attention_mask, scaling, **kwargs):
    query, key, value = (Exchange.apply(tensor, 1, 2) for tensor in (query, key, value))
    output = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return Exchange.apply(output, 2, 1).transpose(1, 2), None


AttentionInterface.register("ring", ring)
AttentionInterface.register("ulysses", ulysses)


def own_tokens(model):
    positions = torch.arange(32)[None].chunk(size, 1)[rank]
    logits = model(input_ids=ids.chunk(size, 1)[rank], position_ids=positions).logits.flatten(0, 1)
    return F.cross_entropy(logits, labels.chunk(size, 1)[rank].flatten(), reduction="sum") / (labels != -100).sum()


def sum_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def summed(result):
    losses = torch.tensor(result["losses"])
    dist.all_reduce(losses)
    return result | {"losses": losses.tolist()}


class Half(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.rotary, self.layers = model.model.rotary_emb, model.model.layers[2 * rank : 2 * rank + 2]
        self.first = model.model.embed_tokens if rank == 0 else torch.nn.Identity()
        self.last = torch.nn.Sequential(model.model.norm, model.lm_head) if rank == 1 else torch.nn.Identity()

    def forward(self, hidden):
        hidden = self.first(hidden)
        rotary = self.rotary(hidden, torch.arange(hidden.size(1))[None])
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None)
        return self.last(hidden)


def pipeline():
    half = Half(llama())
    optimizer, results, sent = torch.optim.SGD(half.parameters(), lr=0.1), [], {}
    token_loss = lambda logits, ids: F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    schedule = Schedule1F1B(PipelineStage(half, rank, size, torch.device("cpu")), n_microbatches=4, loss_fn=token_loss)
    for step in range(4):
        losses, tracker = [], RankTracker(half, optimizer) if step == 1 else contextlib.nullcontext()
        with tracker:
            schedule.step(*[ids] * (rank == 0), target=ids if rank else None, losses=losses)
        if step == 1:
            sent = {c.kind: [c.count, c.payload] for c in tracker.collectives.values()}
        optimizer.step()
        optimizer.zero_grad()
        results.append(torch.stack(losses).mean().item() if rank else 0.0)
    return summed({"losses": results, "sent": sent})


def own_rows(model):
    return model(input_ids=ids.chunk(size)[rank], labels=ids.chunk(size)[rank]).loss / size


results = {"one process": train(llama(), whole_batch), "one process, experts": train(moe(), whole_batch)}
results["TP, transformers"] = train(from_checkpoint(llama(), "four", tp_size=size), whole_batch)
results["TP, transformers, two layers"] = train(from_checkpoint(llama(2), "two", tp_size=size), whole_batch, steps=1)
results["TP, PyTorch"] = train(parallelized(), whole_batch)
results["TP, PyTorch, two layers"] = train(parallelized(2), whole_batch, steps=1)
results["TP, input not prepared"] = train(parallelized(prepare=False), whole_batch, steps=1)
results["TP, input not prepared, two layers"] = train(parallelized(2, prepare=False), whole_batch, steps=1)
results["TP + SP"] = train(parallelized(between=Shard(1)), all_positions)
results["TP + SP, two layers"] = train(parallelized(2, between=Shard(1)), all_positions, steps=1)
results["ring attention"] = summed(train(llama(attention="ring"), own_tokens, after=sum_gradients))
results["Ulysses"] = summed(train(llama(attention="ulysses"), own_tokens, after=sum_gradients))
results["pipeline, 1F1B"] = pipeline()
experts = from_checkpoint(moe(), "moe", fsdp_size=size, ep_size=size)
experts_loss = lambda model: own_rows(model) * size  # FSDP averages the gradients itself
results["experts, transformers"] = train(experts, experts_loss)
results["experts, transformers"] = summed(results["experts, transformers"])
results["experts, transformers"]["losses"] = [loss / size for loss in results["experts, transformers"]["losses"]]
if rank == 0:
    print("RESULTS", json.dumps(results))
dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
run = run_ranks("strategies.py", processes=2, timeout=400, folder=".", environment={"CUDA_VISIBLE_DEVICES": ""})
results = json.loads(run.stdout[0].split("RESULTS ")[1])

# %% tags=["measures"]
WAYS = ["one process", "TP, transformers", "TP, PyTorch", "TP + SP", "ring attention", "Ulysses", "pipeline, 1F1B",
        "one process, experts", "experts, transformers"]


def off(way):
    """The largest difference from the losses of one process, as a share of the loss."""
    reference = results["one process, experts" if "experts" in way else "one process"]["losses"]
    return max(abs(a / b - 1) for a, b in zip(results[way]["losses"], reference))


table(
    "losses", "Loss of four SGD steps on two processes, a small Llama (and a small mixture of experts)",
    {"way": "Way", **{f"step{n}": f"Step {n}" for n in range(1, 5)}},
    [{"way": way, **{f"step{n}": round(loss, 5) for n, loss in enumerate(results[way]["losses"], 1)}} for way in WAYS],
    kind="measured",
)
claim("loss-difference", "Largest relative difference of a loss on two processes from that on one, over all ways and four steps",
      1e6 * max(map(off, WAYS)), "millionths", kind="measured", at_most=20)
claim("learned", "What these four steps take off the loss on one process: a check that something is learned",
      results["one process"]["losses"][0] - results["one process"]["losses"][3], "nats", kind="measured", at_least=0.1, at_most=0.4)

# %% [markdown]
# ## Collectives per layer
#
# The difference between four layers and two, divided by two.

# %% tags=["measures"]
def per_layer(way, kind):
    four, two = (results[name]["sent"].get(kind, [0, 0])[0] for name in (way, f"{way}, two layers"))
    return (four - two) / 2


KINDS = ("all-reduce", "all-gather", "reduce-scatter")
table(
    "per-layer", "Collectives of one Llama layer, forward and backward pass together, two processes",
    {"way": "Way", **{kind: kind.capitalize() for kind in KINDS}},
    [{"way": way, **{kind: per_layer(way, kind) for kind in KINDS}}
     for way in ("TP, PyTorch", "TP, input not prepared", "TP, transformers", "TP + SP")],
    kind="measured",
)
claim("tp-per-layer", "All-reduces of a Llama layer under PyTorch's plan with prepared inputs, forward and backward",
      per_layer("TP, PyTorch", "all-reduce"), kind="measured", at_least=4, at_most=4)
claim("tp-transformers-per-layer", "All-reduces of a Llama layer under the plan of transformers, forward and backward",
      per_layer("TP, transformers", "all-reduce"), kind="measured", at_least=7, at_most=7)

# %% [markdown]
# ## Bytes against formulas
#
# B sequences of S tokens, width H, n ranks, b bytes per element, KV the width of keys (and of values). What one rank sends
# for one layer, forward and backward:
#
# - tensor parallelism: four all-reduces of B S H b, each 2 (n-1)/n times round a ring;
# - with sequence parallelism: an all-gather and a reduce-scatter in the place of each, as many bytes;
# - ring attention as written here: n-1 times the local keys and values forward, as much backward for their gradients;
# - Ulysses: all-to-all of queries, keys, values and output, forward and backward;
# - a pipeline: B S H b at every cut, forward and backward, whatever the number of layers.

# %% tags=["measures"]
TOKENS, WIDTH, KV, LAYERS, N = 8 * 32, 64, 32, 4, 2


def counted(way, kind):
    """Bytes in fp32 that rank 0 sends in a step: by ring, or to its neighbor."""
    count, payload = results[way]["sent"][kind]
    return payload * {"all-reduce": 2 * (N - 1) / N, "send": 1}.get(kind, (N - 1) / N)


FORMULAS = {
    "TP, PyTorch": (["all-reduce"], 4 * 2 * (N - 1) / N * TOKENS * WIDTH * 4 * LAYERS),
    "TP + SP": (["all-gather", "reduce-scatter"], 4 * 2 * (N - 1) / N * TOKENS * WIDTH * 4 * LAYERS),
    "ring attention": (["send"], 2 * (N - 1) * TOKENS / N * 2 * KV * 4 * LAYERS),
    "Ulysses": (["all-to-all"], 2 * (N - 1) / N * TOKENS / N * (2 * WIDTH + 2 * KV) * 4 * LAYERS),
    "pipeline, 1F1B": (["send"], TOKENS * WIDTH * 4),
}


def of_layers(way, kinds):
    """Without what lies outside of the layers (embedding, output layer), where a run with two layers tells."""
    if f"{way}, two layers" not in results:
        return sum(counted(way, kind) for kind in kinds)
    return 2 * sum(counted(way, kind) - counted(f"{way}, two layers", kind) for kind in kinds)


rows = [{"way": way, "counted": of_layers(way, kinds) / 1000, "formula": formula / 1000} for way, (kinds, formula) in FORMULAS.items()]
table(
    "formulas", "Bytes that rank 0 sends for the four layers of a step, counted and by formula, two processes, fp32",
    {"way": "Way", "counted": "Counted, kB", "formula": "Formula, kB"}, rows, kind="measured",
)
claim("formula-difference", "Largest difference between counted bytes and formula, over these ways",
      100 * max(abs(row["counted"] / row["formula"] - 1) for row in rows), "%", kind="measured", at_most=1)

# %% [markdown]
# ## Tensor parallelism at full size
#
# Rank 0 of 8, an 8B and a 70B Llama in bf16, traced. Both are traced with few of their layers, and the rest is
# added in proportion: every layer is alike.

# %%
llama_8b = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072, tie_word_embeddings=False,
)
LENGTH = 8192


def cut(layers, **changes):
    return LlamaConfig(**{**llama_8b.to_dict(), "num_hidden_layers": layers, **changes})


def extrapolated(values, few, all_layers):
    """From the values at `few` and twice as many layers, which are linear in the layers, to that of `all_layers`."""
    low, high = values
    return low + (high - low) * (all_layers - few) / few


def traced(all_layers, ranks, few=2, **options):
    changes = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64} if all_layers == 80 else {}
    pair = []
    for layers in (few, 2 * few):
        if ranks == 1:
            pair.append(training_step(AutoModelForCausalLM, cut(layers, **changes), 1, LENGTH, dtype=BF16))
        else:
            pair.append(rank_step(AutoModelForCausalLM, cut(layers, **changes), "tp", ranks, 1, LENGTH, dtype=BF16, compute=None, **options))

    def kept(step):  # what collectives made inside of an autograd function is filed as temporary, and stays for backward
        return sum(step.after_forward.get(category, 0) for category in ("activations", "temporaries"))

    def whole(read):
        return extrapolated([read(step) for step in pair], few, all_layers)

    return {
        "floor": whole(lambda step: 4 * step.after_forward["parameters"]) / GiB,
        "activations": whole(kept) / GiB,
        "outside": extrapolated([kept(step) for step in pair], few, 0) / GiB,
        "collectives": whole(lambda step: step.count()) if ranks > 1 else 0,
        "sent": whole(lambda step: step.sent()) / 1e9 if ranks > 1 else 0,
    }


CASES = {
    "8B, one GPU": (32, 1, {}), "8B, TP 8": (32, 8, {}), "8B, TP 8 + SP": (32, 8, {"sequence_parallel": True}),
    "70B, TP 8": (80, 8, {}), "70B, TP 8 + SP": (80, 8, {"sequence_parallel": True}),
}
full = {name: traced(layers, ranks, **options) for name, (layers, ranks, options) in CASES.items()}
table(
    "full-size", f"Rank 0 of a training step, 1 x {LENGTH:,} tokens, pure bf16, AdamW",
    {"case": "Model and split", "floor": "Weights, gradients, AdamW state, GiB", "activations": "Activations after forward, GiB",
     "outside": "of them outside of the layers, GiB", "collectives": "Collectives", "sent": "Sent per rank, GB"},
    [{"case": name, **case} for name, case in full.items()],
    kind="traced",
)
claim("tp-activations", "Activations of one GPU against those of rank 0 under TP 8, 8B Llama, 8,192 tokens, after the forward pass",
      full["8B, one GPU"]["activations"] / full["8B, TP 8"]["activations"], "x", kind="traced", at_least=2.1, at_most=2.3)
claim("sp-activations", "Activations of one GPU against those of rank 0 under TP 8 with sequence parallelism, 8B Llama, 8,192 tokens, after the forward pass",
      full["8B, one GPU"]["activations"] / full["8B, TP 8 + SP"]["activations"], "x", kind="traced", at_least=3.7, at_most=4.1)
def in_layers(name):
    return full[name]["activations"] - full[name]["outside"]


claim("sp-layers", "Activations in the layers alone: one GPU against rank 0 under TP 8 with sequence parallelism, 8B Llama, 8,192 tokens",
      in_layers("8B, one GPU") / in_layers("8B, TP 8 + SP"), "x", kind="traced", at_least=4.9, at_most=5.3)
claim("sp-outside", "Activations outside of the layers under TP 8 with sequence parallelism, 8B Llama, 8,192 tokens: nearly all of it the fp32 log-softmax of the logits",
      full["8B, TP 8 + SP"]["outside"], "GiB", kind="traced", at_least=3.8, at_most=4.2)
claim("tp-70b-floor", "Weights, gradients and AdamW state per GPU of a 70B Llama in pure bf16 under TP 8", full["70B, TP 8"]["floor"], "GiB",
      kind="traced", at_least=60, at_most=72)
BY_HAND = 4 * 2 * 7 / 8 * LENGTH * 4096 * 2
claim("tp-bytes-per-layer", "Bytes that a rank sends for one layer of an 8B Llama under TP 8, 8,192 tokens in bf16: four all-reduces",
      BY_HAND / 1e9, "GB", kind="derived", at_least=0.46, at_most=0.48)
four, eight = (rank_step(AutoModelForCausalLM, cut(n), "tp", 8, 1, LENGTH, dtype=BF16, compute=None) for n in (1, 2))
claim("tp-traced-difference", "Difference between the traced bytes of a layer and this formula",
      100 * abs((eight.sent() - four.sent()) / BY_HAND - 1), "%", kind="traced", at_most=1)

# %% [markdown]
# ## Never beyond the node: seconds per step
#
# The bytes above over the peak of a link, one direction, beside the time that the FLOPs of the step take on 8 H100 at an
# assumed share of their peak.

# %%
PARAMETERS_8B, SHARE = 8.03e9, 0.4
COMPUTE = 6 * PARAMETERS_8B * LENGTH / (8 * SHARE * GPUS["H100 80GB"][1] * 1e12)
times = {link: full["8B, TP 8"]["sent"] / LINKS[link][0] for link in ("NVLink 4", "PCIe 5 x16", "InfiniBand NDR", "100 GbE")}
table(
    "tp-time", f"Time of TP's communication in a step of an 8B Llama, TP 8, 1 x {LENGTH:,} tokens, beside its FLOPs at 40 % of the peak of 8 H100",
    {"link": "Link", "rate": "Peak, GB/s per direction", "seconds": "Communication, s", "ratio": "Against computing"},
    [{"link": link, "rate": LINKS[link][0], "seconds": seconds, "ratio": seconds / COMPUTE} for link, seconds in times.items()],
    kind="derived",
)
claim("tp-nvlink", "Time of TP's communication over NVLink 4 against that of the FLOPs, 8B Llama, TP 8, 8,192 tokens, 40 % of the peak of 8 H100",
      100 * times["NVLink 4"] / COMPUTE, "%", kind="derived", at_least=20, at_most=45)
claim("tp-infiniband", "The same over InfiniBand NDR, one adapter per GPU", times["InfiniBand NDR"] / COMPUTE, "x", kind="derived", at_least=1.8, at_most=4)

# %% [markdown]
# On two GPUs or more, the real thing: a step of a 1B Llama under PyTorch's plan on two of them, against one.

# %% tags=["measures"]
# %%writefile gpus.py
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                     num_key_value_heads=8, use_cache=False)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
whole = Replicate()
plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {
    "self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
    "mlp.down_proj": RowwiseParallel(), "mlp": PrepareModuleInput(input_layouts=(whole,), desired_input_layouts=(whole,)),
    "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": whole}, desired_input_kwarg_layouts={"hidden_states": whole})}
for layer in model.model.layers:
    parallelize_module(layer, mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
ids = torch.zeros(4, 2048, dtype=torch.long, device="cuda")
seconds = []
for _ in range(8):
    torch.cuda.synchronize()
    started = time.perf_counter()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - started)
if mesh.get_rank() == 0:
    print("SECONDS", min(seconds[3:]))
dist.barrier()
dist.destroy_process_group()

# %% tags=["measures"]
def gpu_seconds(processes):
    return float(run_ranks("gpus.py", processes=processes, timeout=400, folder=".").stdout[0].split("SECONDS ")[1])


SEVERAL = torch.cuda.device_count() > 1
claim("tp-step", "Time of a step of a 1B Llama, 4 x 2,048 tokens in bf16, under tensor parallelism over 2 GPUs against one GPU",
      gpu_seconds(2) / gpu_seconds(1) if SEVERAL else None, "x", kind="measured", at_least=0.45, at_most=3,
      because="this machine has fewer than two GPUs")

# %% [markdown]
# ## Context parallelism at 131,072 tokens
#
# Outside of attention, a rank of n works on S / n tokens as one GPU would. So its activations are those of a step with that
# many tokens, and the keys and values on their way come on top.

# %%
LONG = 131072


def activations(length):
    """After the forward pass of an 8B Llama in bf16, from 1 and 2 layers; what the loss keeps of the logits included."""
    pair = [training_step(AutoModelForCausalLM, cut(layers), 1, length, dtype=BF16).after_forward["activations"] for layers in (1, 2)]
    return extrapolated(pair, 1, 32) / GiB


alone, eighth = activations(LONG), activations(LONG // 8)
claim("cp-alone", "Activations of an 8B Llama after the forward pass on one sequence of 131,072 tokens, one GPU, bf16, no checkpointing",
      alone, "GiB", kind="traced", at_least=500, at_most=900)
claim("cp-eighth", "The same for the part of one rank of 8", eighth, "GiB", kind="traced", at_least=60, at_most=115)
QUERY, KEYS = 4096, 1024
ring_bytes = 32 * 2 * 7 * (LONG // 8) * 2 * KEYS * 2
ulysses_bytes = 32 * 2 * 7 / 8 * (LONG // 8) * (2 * QUERY + 2 * KEYS) * 2
tensor_bytes = 32 * 4 * 2 * 7 / 8 * LONG * QUERY * 2
table(
    "long", "Bytes that one rank of 8 sends in a step of an 8B Llama on one sequence of 131,072 tokens, bf16, by formula",
    {"way": "Way", "sent": "Sent, GB", "seconds": "Over NVLink 4, s", "slow": "Over InfiniBand NDR, s"},
    [{"way": way, "sent": sent / 1e9, "seconds": sent / 1e9 / LINKS["NVLink 4"][0], "slow": sent / 1e9 / LINKS["InfiniBand NDR"][0]}
     for way, sent in (("tensor parallelism (with or without SP)", tensor_bytes), ("ring attention", ring_bytes), ("Ulysses", ulysses_bytes))],
    kind="derived",
)
claim("ulysses-against-tp", "Bytes of tensor parallelism against Ulysses, 8B Llama on 8 ranks", tensor_bytes / ulysses_bytes, "x", kind="derived",
      at_least=12, at_most=14)
claim("ring-against-ulysses", "Bytes of ring attention against Ulysses, 8B Llama with 8 key and value heads on 8 ranks", ring_bytes / ulysses_bytes,
      "x", kind="derived", at_least=1.5, at_most=1.7)
BLOCKS = [rank + 0.5 for rank in range(8)]  # of keys, for the queries of each rank: of its own block half is masked
claim("ring-imbalance", "Work of the last rank of 8 against the mean, where ring attention skips what is masked and the sequence is cut in order",
      max(BLOCKS) / (sum(BLOCKS) / 8), "x", kind="derived", at_least=1.87, at_most=1.88)

# %% [markdown]
# ## Pipeline schedules, played through
#
# PyTorch's schedule says in which order each rank works. We play that order: an action starts when its rank is free and
# its input has arrived. A forward pass takes one unit of time, a backward pass two, and its halves (gradient of the input,
# gradient of the weights) one each. Sending takes none. Of the time, the share in which ranks wait is the bubble.

# %%
def order_of(name, ranks, micro_batches):
    """{rank: its forward and backward actions, in order}, from PyTorch's own schedule."""
    Schedule = get_schedule_class(name)
    several = issubclass(Schedule, PipelineScheduleMulti)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        numbers = [0] if not several else [0, 2 * ranks - 1] if "ZBV" in name else [0, ranks]
        count = 2 * ranks if several else ranks
        stages = [PipelineStage(torch.nn.Linear(1, 1), n, count, torch.device("cpu")) for n in numbers]
        schedule = Schedule(stages if several else stages[0], n_microbatches=micro_batches, loss_fn=torch.nn.functional.mse_loss)
        orders = {rank: [a for a in actions if a is not None and a.computation_type.value in ("F", "B", "I", "W")]
                  for rank, actions in schedule.pipeline_order.items()}
    finally:
        dist.destroy_process_group()
    if name == "1F1B":  # torch 2.13 lists its forward passes under wrong numbers; it runs them one after the other
        for actions in orders.values():
            forward = iter(range(micro_batches))
            actions[:] = [a._replace(microbatch_index=next(forward)) if a.computation_type.value == "F" else a for a in actions]
    return orders


def play(order):
    """(bubble, most micro-batches in flight on a rank) of a schedule."""
    place = {action.stage_index: rank for rank, actions in order.items() for action in actions}
    last, split = max(place), len(place) / len(order)
    done, clock, waiting = {}, dict.fromkeys(order, 0), {rank: list(actions) for rank, actions in order.items()}
    busy, flying = dict.fromkeys(order, 0), {rank: [0] for rank in order}
    while any(waiting.values()):
        before = len(done)
        for rank, actions in waiting.items():
            while actions:
                stage, kind, batch = actions[0].stage_index, actions[0].computation_type.value, actions[0].microbatch_index
                needs = {"F": [("F", stage - 1)] if stage else [], "W": [("I", stage)]}.get(
                    kind, [("F", stage)] + ([("B", stage + 1)] if stage < last else []))
                found = [done.get((what, where, batch)) for what, where in needs]
                if None in found:
                    break
                takes = 2 if kind == "B" else 1
                clock[rank] = max([clock[rank], *found]) + takes
                busy[rank] += takes
                done[kind, stage, batch] = clock[rank]
                if kind in "BI":  # the gradient of the input, which the stage before waits for
                    done["B", stage, batch] = clock[rank]
                flying[rank].append(flying[rank][-1] + {"F": 1, "I": 0}.get(kind, -1))
                actions.pop(0)
        assert len(done) > before, "the schedule stands still"
    assert all(counts[-1] == 0 for counts in flying.values())
    return 1 - sum(busy.values()) / (len(order) * max(clock.values())), max(map(max, flying.values())) / split


SCHEDULES = ["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"]


def formula(name, p, m):
    """p - 1 waits for a forward pass through one stage; ZBV fills all others with gradients of the weights, from m = 2 p on."""
    return (p - 1) / (m * {"Interleaved1F1B": 2, "ZBVZeroBubble": 6}.get(name, 1) + p - 1)


played = {(name, p, m): play(order_of(name, p, m)) for p, m in ((4, 8), (4, 16), (8, 16), (8, 32)) for name in SCHEDULES}
table(
    "bubbles", "Bubble and micro-batches in flight, played from PyTorch's order of actions",
    {"schedule": "Schedule", "stages": "Ranks p", "batches": "Micro-batches m", "bubble": "Bubble, %", "formula": "Formula, %",
     "flying": "Most in flight on a rank, micro-batches"},
    [{"schedule": name, "stages": p, "batches": m, "bubble": 100 * bubble, "formula": 100 * formula(name, p, m), "flying": flying}
     for (name, p, m), (bubble, flying) in played.items()],
    kind="derived",
)
claim("bubble-formula", "Largest difference between a played bubble and its formula, over these schedules, in percentage points",
      100 * max(abs(bubble - formula(*case)) for case, (bubble, _) in played.items()), "points", kind="derived", at_most=0.01)
for short, name in (("gpipe", "GPipe"), ("1f1b", "1F1B"), ("interleaved", "Interleaved1F1B"), ("zbv", "ZBVZeroBubble")):
    bubble, flying = played[name, 8, 32]
    limits = {"gpipe": (17, 19), "1f1b": (17, 19), "interleaved": (9, 11), "zbv": (3, 4)}[short]
    claim(f"bubble-{short}", f"Bubble of {name}, 8 ranks and 32 micro-batches", 100 * bubble, "%", kind="derived", at_least=limits[0], at_most=limits[1])
claim("gpipe-in-flight", "Micro-batches whose activations a rank holds at once under GPipe, 8 ranks and 32 micro-batches",
      played["GPipe", 8, 32][1], "micro-batches", kind="derived", at_least=32, at_most=32)
claim("1f1b-in-flight", "The same under 1F1B, at the first rank", played["1F1B", 8, 32][1], "micro-batches", kind="derived", at_least=8, at_most=8)
claim("interleaved-in-flight", "The same under Interleaved1F1B with two stages per rank, in micro-batches through a whole rank",
      played["Interleaved1F1B", 8, 32][1], "micro-batches", kind="derived", at_least=11, at_most=12)

# %%
batches = [8, 16, 32, 64]
curves = {name: [100 * play(order_of(name, 8, m))[0] for m in batches] for name in SCHEDULES}
table(
    "bubble-batches", "Bubble against micro-batches, 8 ranks, played from PyTorch's order of actions",
    {"batches": "Micro-batches", **{name: f"{name}, %" for name in SCHEDULES}},
    [{"batches": m, **{name: curve[row] for name, curve in curves.items()}} for row, m in enumerate(batches)], kind="derived",
)
figure, axes = plt.subplots(figsize=(7, 3))
for (name, curve), color, line in zip(curves.items(), ("#c45500", "#0072b2", "#00805c", "#7a4fa3"), ("-", "--", "-", "-")):
    axes.plot(batches, curve, line, marker="o", label=name, color=color)
axes.set(xscale="log", xlabel="micro-batches, on 8 ranks", ylabel="bubble, %", ylim=(0, None))
axes.set_xticks(batches, batches)
axes.minorticks_off()
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Expert parallelism
#
# The tokens of a rank travel to the ranks of their experts, and the results back: two all-to-alls in the forward pass and
# two in the backward pass, plus a small one with the counts. Each moves every token once per chosen expert.

# %% tags=["measures"]
MOE_LAYERS = 4
all_to_alls = results["experts, transformers"]["sent"]["all-to-all"][0] / MOE_LAYERS
claim("ep-per-layer", "All-to-alls of a mixture-of-experts layer under transformers' ep_size, forward and backward, the counts included",
      all_to_alls, kind="measured", at_least=5, at_most=5)

# %%
MOE_TOKENS, MOE_WIDTH, CHOSEN = 8192, 2048, 8
ep_bytes = 4 * 7 / 8 * MOE_TOKENS * CHOSEN * MOE_WIDTH * 2
claim("ep-bytes", "Bytes that a rank of 8 sends for one layer of the Qwen3-30B-A3B class, 8,192 tokens per rank, tokens spread evenly, bf16",
      ep_bytes / 1e9, "GB", kind="derived", at_least=0.93, at_most=0.95)
