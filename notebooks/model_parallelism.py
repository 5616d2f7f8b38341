# ---
# jupyter:
#   runs_on: cpu, two processes send the bytes that two GPUs would send
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
# **What does each way to split a model send, what does it leave whole on each GPU, where
# do GPUs wait, and does it train as one process does?**
#
# Sharding gathers a layer before it runs. A split never gathers it: each GPU computes its
# part, and the parts exchange results.
#
# *What to expect.*
#
# - *Tensor parallelism* sums activations several times in every layer. So it sends much,
#   and the next product waits for each sum: it needs the fastest link.
# - *Ring attention and Ulysses* split the sequence and exchange only what attention needs.
# - *A pipeline* sends one activation at each cut, which fits slow links. Instead, GPUs
#   wait at the start and at the end of a step: the bubble.
# - *Expert parallelism* sends each token to its experts and back.
# - All of them give the losses of one process. If one does not, it sums where it should
#   average, or forgets a gradient.
#
# *How it is measured.* Losses and collectives come from real runs on two CPU processes,
# with tiny models, because neither depends on size. Bytes and memory at full size are
# traced: one rank of eight runs the real code on tensors without data. Pipeline schedules
# are played through, action by action. Seconds are bytes over the peak of a link, so a
# real link takes longer.

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
import json
import logging
import tempfile
import warnings

logging.disable(logging.WARNING)  # what packages say at import
warnings.simplefilter("ignore")

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, LlamaConfig

from dryrun.answer.planner import GPUS, LINKS
from dryrun.tracing.ranks import rank_step
from dryrun.tracing import GiB, training_step
from evidence import plots
from evidence.claims import claim, start, table
from evidence.launch import run_ranks

GB, BF16 = 1e9, torch.bfloat16
os.chdir(tempfile.mkdtemp())  # where the programs go
plots.set_up("model_parallelism")
start("model_parallelism")

# %% [markdown]
# ## Two processes give the losses of one
#
# Each way makes four steps of SGD from the same weights and the same tokens. SGD on
# purpose: Adam divides a gradient by its own size, and would hide a gradient that is
# twice too large.
#
# The programs share one module. It opens the process group, makes the model and the
# tokens, and counts the collectives of the last step.

# %% tags=["measures"]
# %%writefile ranks.py
import contextlib
import json

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from dryrun.tracing.collectives import RankTracker

disable_progress_bar()
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))
SMALL = {"vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False}
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1))
labels = F.pad(ids[:, 1:], (0, 1), value=-100)


def llama(layers=4, attention="sdpa"):
    torch.manual_seed(0)
    config = LlamaConfig(**SMALL, intermediate_size=128, num_hidden_layers=layers, attn_implementation=attention)
    return LlamaForCausalLM(config)

# %% tags=["measures"]
# %%writefile -a ranks.py


def counting(model, optimizer, step, steps):
    """Counts collectives in the last step. Before, FSDP2 and pipelines still make what they keep."""
    return RankTracker(model, optimizer) if step == steps - 1 else contextlib.nullcontext()


def sent_in(tracker):
    """{kind of collective: [how many, bytes of the whole tensors]}"""
    return {c.kind: [c.count, c.payload] for c in tracker.collectives.values()}


def train(model, loss_of, steps=4, after=lambda model: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses = []
    for step in range(steps):
        with counting(model, optimizer, step, steps) as tracker:
            loss = loss_of(model)
            loss.backward()
        after(model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "sent": sent_in(tracker)}

# %% tags=["measures"]
# %%writefile -a ranks.py


def whole_batch(model):
    return model(input_ids=ids, labels=ids).loss


def from_checkpoint(model, folder, **sizes):
    """The same model, split by transformers while it loads."""
    if rank == 0:
        model.save_pretrained(folder)
    dist.barrier()
    return type(model).from_pretrained(folder, distributed_config=DistributedConfig(**sizes))


def summed(result):
    """For ways where each rank has a part of the loss."""
    losses = torch.tensor(result["losses"])
    dist.all_reduce(losses)
    return result | {"losses": losses.tolist()}


def end(results):
    if rank == 0:
        print(json.dumps(results), flush=True)
    waits = dist.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    waits.wait()
    dist.destroy_process_group()

# %% [markdown]
# ### Tensor parallelism
#
# The first matrix of a pair is cut by columns, the second by rows. Between them each rank
# works on its own heads, or on its own part of the MLP, and one all-reduce at the end sums
# the results.
#
# The plan below says so in PyTorch's words. `PrepareModuleInput` makes the input of a
# block a distributed tensor once; without it each of the matrices reduces its own
# gradient. With `between=Shard(1)` norms and residuals are split along the sequence too:
# sequence parallelism.

# %% tags=["measures"]
# %%writefile tensor.py
import functools

from ranks import end, from_checkpoint, ids, labels, llama, mesh, size, torch, train, whole_batch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module,
)

WHOLE, BY_TOKENS = Replicate(), Shard(1)


def plan_of_a_layer(between, prepare):
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {
        "self_attn.o_proj": RowwiseParallel(output_layouts=between), "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(output_layouts=between)}
    if prepare:
        hidden = "hidden_states"
        plan["self_attn"] = PrepareModuleInput(
            input_kwarg_layouts={hidden: between}, desired_input_kwarg_layouts={hidden: WHOLE})
        plan["mlp"] = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(WHOLE,))
    if between == BY_TOKENS:
        plan |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel()}
    return plan

# %% tags=["measures"]
# %%writefile -a tensor.py


def parallelized(layers, between=WHOLE, prepare=True):
    plan = {"model.embed_tokens": RowwiseParallel(input_layouts=WHOLE, output_layouts=between),
            "lm_head": ColwiseParallel(input_layouts=between, output_layouts=WHOLE)}
    if between == BY_TOKENS:
        plan["model.norm"] = SequenceParallel()
    plan |= {f"model.layers.*.{name}": style for name, style in plan_of_a_layer(between, prepare).items()}
    return parallelize_module(llama(layers), mesh, plan)


def all_positions(model):  # with its part of the tokens, the model would count positions from 0
    return model(input_ids=ids, position_ids=torch.arange(32)[None], labels=ids).loss


WAYS = {"TP, transformers": (lambda layers: from_checkpoint(llama(layers), f"tp{layers}", tp_size=size), whole_batch),
        "TP, PyTorch": (parallelized, whole_batch),
        "TP, input not prepared": (functools.partial(parallelized, prepare=False), whole_batch),
        "TP + SP": (functools.partial(parallelized, between=BY_TOKENS), all_positions)}
results = {"one process": train(llama(), whole_batch)}
for name, (make, loss_of) in WAYS.items():
    results[name] = train(make(4), loss_of)
    results[f"{name}, two layers"] = train(make(2), loss_of, steps=1)
end(results)

# %% [markdown]
# ### Ring attention
#
# Each rank has a part of the sequence, and the queries of that part. Keys and values go
# round: each rank adds up its softmax block by block. With m the highest score so far, l
# the sum of exp(score - m) and o the sum of exp(score - m) times value, a new block with a
# higher score m' rescales both sums by exp(m - m'). At the end the output is o / l. This
# is what FlashAttention does inside one GPU.
#
# In the backward pass the gradients travel the other way. The mask compares positions in
# the whole sequence.

# %% tags=["measures"]
# %%writefile ring.py
from ranks import dist, rank, size, torch


class Rotate(torch.autograd.Function):
    """Gives a tensor to a neighbor and takes the tensor of the neighbor on the other side."""

    @staticmethod
    def forward(ctx, tensor, step):
        ctx.step, tensor = step, tensor.contiguous()
        received = torch.empty_like(tensor)
        exchange = [dist.P2POp(dist.isend, tensor, (rank + step) % size),
                    dist.P2POp(dist.irecv, received, (rank - step) % size)]
        for request in dist.batch_isend_irecv(exchange):
            request.wait()
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Rotate.apply(gradient, -ctx.step), None

# %% tags=["measures"]
# %%writefile -a ring.py


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

# %% [markdown]
# ### Ulysses
#
# Each rank has a part of the sequence here too. An all-to-all before attention trades it
# for the whole sequence of some heads, and another after attention trades back.
#
# Two things hold for both ways. The loss is a sum over the rank's tokens, divided by the
# tokens of *all* ranks. And the labels are shifted *before* the sequence is cut.

# %% tags=["measures"]
# %%writefile sequence.py
from ranks import F, dist, end, ids, labels, llama, rank, size, summed, torch, train
from ring import ring
from transformers import AttentionInterface


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

# %% tags=["measures"]
# %%writefile -a sequence.py


def own_tokens(model):
    positions = torch.arange(32)[None].chunk(size, 1)[rank]
    logits = model(input_ids=ids.chunk(size, 1)[rank], position_ids=positions).logits.flatten(0, 1)
    return F.cross_entropy(logits, labels.chunk(size, 1)[rank].flatten(), reduction="sum") / (labels != -100).sum()


def sum_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


results = {}
for name, attention in (("ring attention", ring), ("Ulysses", ulysses)):
    AttentionInterface.register(name, attention)
    results[name] = summed(train(llama(attention=name), own_tokens, after=sum_gradients))
end(results)

# %% [markdown]
# ### A pipeline
#
# Rank 0 has the embedding and the first two layers, rank 1 the rest. The batch is cut
# into four micro-batches, which PyTorch's schedule sends through the stages. Only the
# last stage knows the loss; only the first one gets the tokens. The mean over equal
# micro-batches is the loss of the whole batch.

# %% tags=["measures"]
# %%writefile pipeline.py
from ranks import F, counting, end, ids, llama, rank, sent_in, size, summed, torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


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


def token_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

# %% tags=["measures"]
# %%writefile -a pipeline.py


half = Half(llama())
optimizer, means = torch.optim.SGD(half.parameters(), lr=0.1), []
stage = PipelineStage(half, rank, size, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=token_loss)
for step in range(4):
    losses = []
    with counting(half, optimizer, step, 4) as tracker:
        schedule.step(*[ids] * (rank == 0), target=ids if rank else None, losses=losses)
    optimizer.step()
    optimizer.zero_grad()
    means.append(torch.stack(losses).mean().item() if rank else 0.0)
end({"pipeline, 1F1B": summed({"losses": means, "sent": sent_in(tracker)})})

# %% [markdown]
# ### Experts
#
# A mixture of experts by transformers' `ep_size`. Each rank has its own rows and its own
# experts. A router picks two experts for every token, and the token travels to the ranks
# that hold them. FSDP2 averages the gradients over the ranks, so each rank gives the mean
# of its own rows.

# %% tags=["measures"]
# %%writefile experts.py
from ranks import SMALL, end, from_checkpoint, ids, rank, size, summed, torch, train, whole_batch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

CONFIG = Qwen3MoeConfig(**SMALL, num_hidden_layers=4, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2,
                        head_dim=16)


def moe():
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(CONFIG)


def own_rows(model):
    rows = ids.chunk(size)[rank]
    return model(input_ids=rows, labels=rows).loss


one = train(moe(), whole_batch)
split = summed(train(from_checkpoint(moe(), "moe", fsdp_size=size, ep_size=size), own_rows))
split["losses"] = [loss / size for loss in split["losses"]]
end({"one process, experts": one, "experts, transformers": split})

# %% [markdown]
# ### What the runs say
#
# Two processes and one must agree but for rounding: a sum in another order differs in the
# seventh digit of fp32. A step too many or a gradient that is counted twice shows from
# the second step on, because the first loss comes before any update. So read the last
# column, not the first. And the loss has to fall: four equal losses that stand still
# would prove nothing.

# %% tags=["measures"]
results = {}
for program in ("tensor.py", "sequence.py", "pipeline.py", "experts.py"):
    ran = run_ranks(program, processes=2, timeout=400, environment={"CUDA_VISIBLE_DEVICES": ""})
    results |= json.loads(ran.stdout[0].strip().splitlines()[-1])
WAYS = [name for name in results if "two layers" not in name]


def off(way):
    """The largest difference from the losses of one process, as a share of the loss."""
    reference = results["one process, experts" if "experts" in way else "one process"]["losses"]
    return max(abs(a / b - 1) for a, b in zip(results[way]["losses"], reference))


table("losses", "Loss of four SGD steps on two processes, a small Llama (and a small mixture of experts)",
      {"way": "Way", **{f"step{n}": f"Step {n}" for n in range(1, 5)}},
      [{"way": way, **{f"step{n}": round(loss, 5) for n, loss in enumerate(results[way]["losses"], 1)}}
       for way in WAYS], kind="measured")
claim("loss-difference", "Largest relative difference of a loss on two processes from that on one, over all ways and "
      "four steps", 1e6 * max(map(off, WAYS)), "millionths", kind="measured", at_most=20)
first, *_, last = results["one process"]["losses"]
assert first - last > 0.1, "nothing is learned, so equal losses prove nothing"

# %% [markdown]
# ## Collectives per layer
#
# A run with four layers and one with two differ by two layers, and by nothing else. Half
# of the difference is what one layer sends.
#
# Why four all-reduces? Forward: one after attention, one after the MLP, where partial
# results of the ranks are summed. Backward: one before each, where the gradients that
# reach the shared input are summed. If each matrix makes its own copy of the input, the
# gradients of queries, keys and values are summed apart, and so are those of the two
# first matrices of the MLP: three more.
#
# With sequence parallelism an all-gather and a reduce-scatter take the place of each
# all-reduce. Round a ring, these two together send as many bytes.

# %% tags=["measures"]
def per_layer(way, kind):
    four, two = (results[name]["sent"].get(kind, [0, 0])[0] for name in (way, f"{way}, two layers"))
    return (four - two) / 2


KINDS = ("all-reduce", "all-gather", "reduce-scatter")
table("per-layer", "Collectives of one Llama layer, forward and backward pass together, two processes",
      {"way": "Way", **{kind: kind.capitalize() for kind in KINDS}},
      [{"way": way, **{kind: per_layer(way, kind) for kind in KINDS}}
       for way in WAYS if f"{way}, two layers" in results], kind="measured")
for name, words, value, expected in (
    ("tp-per-layer", "All-reduces of a Llama layer under PyTorch's plan with prepared inputs, forward and backward",
     per_layer("TP, PyTorch", "all-reduce"), 4),
    ("tp-transformers-per-layer", "All-reduces of a Llama layer under the plan of transformers, forward and backward",
     per_layer("TP, transformers", "all-reduce"), 7),
    ("ep-per-layer", "All-to-alls of a mixture-of-experts layer under ep_size, forward and backward, counts included",
     results["experts, transformers"]["sent"]["all-to-all"][0] / 4, 5),
):
    claim(name, words, value, kind="measured", at_least=expected, at_most=expected)

# %% [markdown]
# ## Bytes against formulas
#
# B sequences of S tokens, width H, n ranks, b bytes per element, K the width of keys (and
# of values). What one rank sends for one layer, forward and backward:
#
# - tensor parallelism: four all-reduces of B S H b, each 2 (n-1)/n times round a ring;
# - with sequence parallelism: an all-gather and a reduce-scatter in the place of each, as
#   many bytes;
# - ring attention as written here: n-1 times the local keys and values forward, as much
#   backward for their gradients;
# - Ulysses: all-to-all of queries, keys, values and output, forward and backward;
# - a pipeline: B S H b at every cut, forward and backward, whatever the number of layers.
#
# The formulas hold only if the counted bytes are theirs, to the byte. Then they hold at
# any size, because they know nothing else than these letters.

# %% tags=["measures"]
TOKENS, WIDTH, KV, LAYERS, N = 8 * 32, 64, 32, 4, 2
FORMULAS = {
    "TP, PyTorch": (["all-reduce"], 4 * 2 * (N - 1) / N * TOKENS * WIDTH * 4 * LAYERS),
    "TP + SP": (["all-gather", "reduce-scatter"], 4 * 2 * (N - 1) / N * TOKENS * WIDTH * 4 * LAYERS),
    "ring attention": (["send"], 2 * (N - 1) * TOKENS / N * 2 * KV * 4 * LAYERS),
    "Ulysses": (["all-to-all"], 2 * (N - 1) / N * TOKENS / N * (2 * WIDTH + 2 * KV) * 4 * LAYERS),
    "pipeline, 1F1B": (["send"], TOKENS * WIDTH * 4),
}


def counted(way, kinds):
    """Bytes in fp32 that rank 0 sends in a step: by ring, or to its neighbor."""
    passed_on = {"all-reduce": 2 * (N - 1) / N, "send": 1}
    return sum(results[way]["sent"][kind][1] * passed_on.get(kind, (N - 1) / N) for kind in kinds)


def of_layers(way, kinds):
    """Without what lies outside of the layers (embedding, output layer), where a run with two layers tells."""
    two = f"{way}, two layers"
    return 2 * (counted(way, kinds) - counted(two, kinds)) if two in results else counted(way, kinds)

# %% tags=["measures"]
rows = [{"way": way, "counted": of_layers(way, kinds) / 1000, "formula": formula / 1000}
        for way, (kinds, formula) in FORMULAS.items()]
table("formulas", "Bytes that rank 0 sends for the four layers of a step, counted and by formula, two processes, fp32",
      {"way": "Way", "counted": "Counted, kB", "formula": "Formula, kB"}, rows, kind="measured")
claim("formula-difference", "Largest difference between counted bytes and formula, over these ways",
      100 * max(abs(row["counted"] / row["formula"] - 1) for row in rows), "%", kind="measured", at_most=1)

# %% [markdown]
# ## Tensor parallelism at full size
#
# Rank 0 of 8, an 8B and a 70B Llama in pure bf16, traced. Every layer is alike, so two
# shallow models give the line that the deep one lies on.
#
# By hand: a layer keeps, for its backward pass, the inputs of its matrices, of its norms
# and of attention. Tensor parallelism divides what lies between the first and the second
# matrix of a pair. What lies outside of the pairs is whole on each rank.
#
# How to read the table: the model state (weights, gradients, AdamW state) divides by 8. The
# activations do not, because norms and residuals lie whole on every rank, and so do the
# logits. Sequence parallelism splits the first two.

# %%
LENGTH = 8192
LLAMA_8B = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072}
LLAMA_70B = LLAMA_8B | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
                        "num_attention_heads": 64}


def step_of(sizes, layers, ranks, **options):
    config = LlamaConfig(**sizes | {"num_hidden_layers": layers})
    if ranks == 1:
        return training_step(AutoModelForCausalLM, config, 1, LENGTH, dtype=BF16)
    return rank_step(AutoModelForCausalLM, config, "tp", ranks, 1, LENGTH, dtype=BF16, compute=None, **options)


def at_depth(low, high, few, layers):
    """A size that grows by the same for every layer, from its values at `few` and twice as many layers."""
    return low + (high - low) * (layers - few) / few


def kept(step):
    """Held for the backward pass. What collectives make inside of an autograd function is filed as temporary."""
    return sum(step.after_forward.get(category, 0) for category in ("activations", "temporaries"))

# %%
def full_size(sizes, ranks, few=2, **options):
    low, high = (step_of(sizes, layers, ranks, **options) for layers in (few, 2 * few))

    def whole(read, layers=sizes["num_hidden_layers"]):
        return at_depth(read(low), read(high), few, layers)

    return {
        "state": whole(lambda step: 4 * step.after_forward["parameters"]) / GiB,
        "activations": whole(kept) / GiB,
        "outside": whole(kept, layers=0) / GiB,
        "collectives": whole(lambda step: step.count()) if ranks > 1 else 0,
        "sent": whole(lambda step: step.sent()) / GB if ranks > 1 else 0,
    }


SP = {"sequence_parallel": True}
full = {"8B, one GPU": full_size(LLAMA_8B, 1), "8B, TP 8": full_size(LLAMA_8B, 8),
        "8B, TP 8 + SP": full_size(LLAMA_8B, 8, **SP), "70B, TP 8": full_size(LLAMA_70B, 8),
        "70B, TP 8 + SP": full_size(LLAMA_70B, 8, **SP)}
table("full-size", f"Rank 0 of a training step, 1 x {LENGTH:,} tokens, pure bf16, AdamW",
      {"case": "Model and split", "state": "Weights, gradients, AdamW state, GiB",
       "activations": "Activations after forward, GiB", "outside": "of them outside of the layers, GiB",
       "collectives": "Collectives", "sent": "Sent per rank, GB"},
      [{"case": name, **case} for name, case in full.items()], kind="traced")

# %% alt="Bars per case: the model state falls by the number of ranks, the activations much less."
plots.bars({name: {"model state": case["state"], "activations in layers": case["activations"] - case["outside"],
                   "activations outside of layers": case["outside"]} for name, case in full.items()}, "on rank 0, GiB")

# %%
def in_layers(name):
    return full[name]["activations"] - full[name]["outside"]


one, tp, sp = "8B, one GPU", "8B, TP 8", "8B, TP 8 + SP"
ONE_GPU = "Activations of one GPU after the forward pass against those of rank 0 under TP 8"
for name, sentence, value, unit, least, most in (
    ("tp-activations", f"{ONE_GPU}, 8B Llama, 8,192 tokens", full[one]["activations"] / full[tp]["activations"], "x",
     2.1, 2.3),
    ("sp-activations", f"{ONE_GPU} with sequence parallelism, 8B Llama, 8,192 tokens",
     full[one]["activations"] / full[sp]["activations"], "x", 3.7, 4.1),
    ("sp-layers", f"{ONE_GPU} with sequence parallelism, in the layers alone, 8B Llama, 8,192 tokens",
     in_layers(one) / in_layers(sp), "x", 4.9, 5.3),
    ("sp-outside", "Activations outside of the layers under TP 8 with sequence parallelism, 8B Llama, 8,192 tokens: "
     "nearly all of it the fp32 log-softmax of the logits", full[sp]["outside"], "GiB", 3.8, 4.2),
    ("tp-70b-floor", "Weights, gradients and AdamW state per GPU of a 70B Llama in pure bf16 under TP 8",
     full["70B, TP 8"]["state"], "GiB", 60, 72),
):
    claim(name, sentence, value, unit, kind="traced", at_least=least, at_most=most)

# %% [markdown]
# The bytes of one layer by hand: four all-reduces of 8,192 tokens of width 4,096 in bf16,
# each 2 (n-1)/n times round a ring of 8. The trace must give the same.

# %%
BY_HAND = 4 * 2 * 7 / 8 * LENGTH * 4096 * 2
shallow, deeper = (step_of(LLAMA_8B, layers, 8) for layers in (1, 2))
claim("tp-bytes-per-layer", "Bytes that a rank sends for one layer of an 8B Llama under TP 8 by PyTorch's plan, 8,192 "
      "tokens in bf16", BY_HAND / GB, "GB", kind="derived", at_least=0.46, at_most=0.48)
claim("tp-traced-difference", "Difference between the traced bytes of a layer and this formula",
      100 * abs((deeper.sent() - shallow.sent()) / BY_HAND - 1), "%", kind="traced", at_most=1)

# %% [markdown]
# ## Never beyond the node: seconds per step
#
# The bytes above over the peak of a link, one direction, beside the time that the FLOPs
# of the step take on 8 H100 at an assumed share of their peak. The dashed line of the
# chart is that time. A link whose bar is far under it can carry tensor parallelism; a
# link whose bar is over it makes the GPUs wait longer than they compute. A product waits for the
# sum before it. Asynchronous tensor parallelism cuts product and sum into pieces that
# overlap, which hides a part of the time, and only as much as there is to compute.

# %% alt="Bars of seconds of tensor parallelism's communication by link beside the time of the FLOPs: only NVLink stays below it."
PARAMETERS_8B, SHARE = 8.03e9, 0.4
COMPUTE = 6 * PARAMETERS_8B * LENGTH / (8 * SHARE * GPUS["H100 80GB"].tflops * 1e12)
RATES = {link: LINKS[link].gb_per_s for link in ("NVLink 4", "PCIe 5 x16", "InfiniBand NDR", "100 GbE")}
times = {link: full[tp]["sent"] / rate for link, rate in RATES.items()}
table("tp-time", f"Time of TP's communication in a step of an 8B Llama, TP 8, 1 x {LENGTH:,} tokens, beside its FLOPs "
      "at 40 % of the peak of 8 H100",
      {"link": "Link", "rate": "Peak, GB/s per direction", "seconds": "Communication, s", "ratio": "Against computing"},
      [{"link": link, "rate": RATES[link], "seconds": seconds, "ratio": seconds / COMPUTE}
       for link, seconds in times.items()], kind="derived")
AGAINST = "against that of the FLOPs, 8B Llama, TP 8, 8,192 tokens, 40 % of the peak of 8 H100"
claim("tp-nvlink", f"Time of TP's communication over NVLink 4 {AGAINST}", 100 * times["NVLink 4"] / COMPUTE, "%",
      kind="derived", at_least=20, at_most=45)
claim("tp-infiniband", f"Time of TP's communication over InfiniBand NDR, one adapter per GPU, {AGAINST}",
      times["InfiniBand NDR"] / COMPUTE, "x", kind="derived", at_least=1.8, at_most=4)
plots.bars({"the FLOPs": COMPUTE} | times, "seconds in a step of an 8B Llama on 8 H100", baseline=COMPUTE)

# %% [markdown]
# ## Context parallelism at 131,072 tokens
#
# Outside of attention, a rank of n works on S / n tokens as one GPU would. So its
# activations are those of a step with that many tokens, and the keys and values on their
# way come on top. The weights stay whole: combine the split with sharding, over the same
# GPUs.

# %%
LONG = 131072


def activations(length):
    """After the forward pass of an 8B Llama in bf16, what the loss keeps of the logits included, in GiB."""
    configs = (LlamaConfig(**LLAMA_8B | {"num_hidden_layers": layers}) for layers in (1, 2))
    low, high = (training_step(AutoModelForCausalLM, config, 1, length, dtype=BF16).after_forward["activations"]
                 for config in configs)
    return at_depth(low, high, 1, 32) / GiB


for name, words, length, least, most in (
    ("cp-alone", "on one sequence of 131,072 tokens, one GPU", LONG, 800, 900),
    ("cp-eighth", "on the part that one rank of 8 has of a sequence of 131,072 tokens", LONG // 8, 100, 115),
):
    claim(name, f"Activations of an 8B Llama after the forward pass {words}, bf16, no checkpointing",
          activations(length), "GiB", kind="traced", at_least=least, at_most=most)

# %% [markdown]
# What travels, by the formulas above, with 8 key and value heads of 128: their width K is
# a quarter of the width H. Tensor parallelism could serve such a sequence too, and sends
# activations of the full width.

# %%
QUERY, KEYS = 4096, 1024
SENT = {
    "tensor parallelism (with or without SP)": 32 * 4 * 2 * 7 / 8 * LONG * QUERY * 2,
    "ring attention": 32 * 2 * 7 * (LONG // 8) * 2 * KEYS * 2,
    "Ulysses": 32 * 2 * 7 / 8 * (LONG // 8) * (2 * QUERY + 2 * KEYS) * 2,
}
table("long", "Bytes that one rank of 8 sends in a step of an 8B Llama on one sequence of 131,072 tokens, bf16, by "
      "formula",
      {"way": "Way", "sent": "Sent, GB", "seconds": "Over NVLink 4, s", "slow": "Over InfiniBand NDR, s"},
      [{"way": way, "sent": sent / GB, "seconds": sent / GB / RATES["NVLink 4"],
        "slow": sent / GB / RATES["InfiniBand NDR"]} for way, sent in SENT.items()], kind="derived")
tensor, ring, ulysses = SENT.values()
BLOCKS = [rank + 0.5 for rank in range(8)]  # of keys, for the queries of each rank: of its own block half is masked
for name, sentence, value, least, most in (
    ("ulysses-against-tp", "Bytes of tensor parallelism against Ulysses, 8B Llama on 8 ranks", tensor / ulysses, 12,
     14),
    ("ring-against-ulysses", "Bytes of ring attention against Ulysses, 8B Llama with 8 key and value heads on 8 ranks",
     ring / ulysses, 1.5, 1.7),
    ("ring-imbalance", "Work of the last rank of 8 against the mean, where ring attention skips what is masked and the "
     "sequence is cut in order", max(BLOCKS) / (sum(BLOCKS) / 8), 1.87, 1.88),
):
    claim(name, sentence, value, "x", kind="derived", at_least=least, at_most=most)

# %% [markdown]
# ## Pipeline schedules, played through
#
# A schedule decides in which order a rank takes its micro-batches, forward and backward.
# That order alone gives the bubble and the memory: how long ranks wait, and how many
# micro-batches are forward and not yet backward.
#
# PyTorch's schedule says in which order each rank works. We ask it for that order, on a
# process group that sends nothing.

# %%
def stages_of(name, ranks):
    """The stages of rank 0, and whether a rank has several."""
    several = issubclass(get_schedule_class(name), PipelineScheduleMulti)
    numbers = [0] if not several else [0, 2 * ranks - 1] if "ZBV" in name else [0, ranks]
    count = 2 * ranks if several else ranks
    stages = [PipelineStage(torch.nn.Linear(1, 1), number, count, torch.device("cpu")) for number in numbers]
    return stages if several else stages[0]


def order_of(name, ranks, micro_batches):
    """{rank: its forward and backward actions, in order}, from PyTorch's own schedule."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        schedule = get_schedule_class(name)(
            stages_of(name, ranks), n_microbatches=micro_batches, loss_fn=torch.nn.functional.mse_loss)
        orders = {rank: [a for a in actions if a is not None and a.computation_type.value in ("F", "B", "I", "W")]
                  for rank, actions in schedule.pipeline_order.items()}
    finally:
        dist.destroy_process_group()
    if name == "1F1B":  # torch 2.13 lists its forward passes under wrong numbers; it runs them one after the other
        for actions in orders.values():
            forward = iter(range(micro_batches))
            actions[:] = [a._replace(microbatch_index=next(forward)) if a.computation_type.value == "F" else a
                          for a in actions]
    return orders

# %% [markdown]
# Then we play it. An action starts when its rank is free and its input has arrived. A
# forward pass takes one unit of time, a backward pass two, and its halves (gradient of
# the input, gradient of the weights) one each. Sending takes none. Of the time, the share
# in which ranks wait is the bubble.

# %%
def needs_of(kind, stage, last):
    """What an action waits for: [(kind, stage)] of the same micro-batch."""
    if kind == "F":
        return [("F", stage - 1)] if stage else []
    if kind == "W":
        return [("I", stage)]
    return [("F", stage)] + ([("B", stage + 1)] if stage < last else [])


def start_of(action, done, last):
    """When the inputs of an action are there; None if that is not known yet."""
    found = [done.get((kind, stage, action.microbatch_index))
             for kind, stage in needs_of(action.computation_type.value, action.stage_index, last)]
    return None if None in found else max(found, default=0)

# %%
def play(order):
    """(bubble, most micro-batches in flight on a rank) of a schedule."""
    last = max(action.stage_index for actions in order.values() for action in actions)
    done, clock, busy = {}, dict.fromkeys(order, 0), dict.fromkeys(order, 0)
    waiting, flying = {rank: list(actions) for rank, actions in order.items()}, {rank: [0] for rank in order}
    while any(waiting.values()):
        before = len(done)
        for place, actions in waiting.items():
            while actions and (ready := start_of(actions[0], done, last)) is not None:
                action = actions.pop(0)
                kind, task = action.computation_type.value, (action.stage_index, action.microbatch_index)
                takes = 2 if kind == "B" else 1
                clock[place] = max(clock[place], ready) + takes
                busy[place] += takes
                done[kind, *task] = clock[place]
                if kind in "BI":  # the gradient of the input, which the stage before waits for
                    done["B", *task] = clock[place]
                flying[place].append(flying[place][-1] + {"F": 1, "I": 0}.get(kind, -1))
        assert len(done) > before, "the schedule stands still"
    stages_of_a_rank = (last + 1) / len(order)
    bubble = 1 - sum(busy.values()) / (len(order) * max(clock.values()))
    return bubble, max(map(max, flying.values())) / stages_of_a_rank

# %% [markdown]
# The formulas to compare with: p - 1 waits for a forward pass through one stage, out of m
# micro-batches of work. Two stages on each rank make the wait shorter. The zero-bubble
# schedule fills waits with gradients of weights, and has its formula from m = 2 p on.

# %%
SCHEDULES = ["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble"]


def formula(name, p, m):
    return (p - 1) / (m * {"Interleaved1F1B": 2, "ZBVZeroBubble": 6}.get(name, 1) + p - 1)


played = {(name, p, m): play(order_of(name, p, m))
          for p, m in ((4, 8), (4, 16), (8, 16), (8, 32)) for name in SCHEDULES}
table("bubbles", "Bubble and micro-batches in flight, played from PyTorch's order of actions",
      {"schedule": "Schedule", "stages": "Ranks p", "batches": "Micro-batches m", "bubble": "Bubble, %",
       "formula": "Formula, %", "flying": "Most in flight on a rank, micro-batches"},
      [{"schedule": name, "stages": p, "batches": m, "bubble": 100 * bubble, "formula": 100 * formula(name, p, m),
        "flying": flying} for (name, p, m), (bubble, flying) in played.items()], kind="derived")
assert all(abs(bubble - formula(*case)) < 1e-9 for case, (bubble, _) in played.items()), "the guide says: equal"

# %%
for name, schedule, least, most in (("gpipe", "GPipe", 17, 19), ("1f1b", "1F1B", 17, 19),
                                    ("interleaved", "Interleaved1F1B", 9, 11), ("zbv", "ZBVZeroBubble", 3, 4)):
    claim(f"bubble-{name}", f"Bubble of {schedule}, 8 ranks and 32 micro-batches", 100 * played[schedule, 8, 32][0],
          "%", kind="derived", at_least=least, at_most=most)
for name, schedule, least, most in (("gpipe", "GPipe", 32, 32), ("1f1b", "1F1B", 8, 8),
                                    ("interleaved", "Interleaved1F1B", 11, 12)):
    claim(f"{name}-in-flight", f"Micro-batches whose activations a rank holds at once under {schedule}, counted "
          "through a whole rank, 8 ranks and 32 micro-batches", played[schedule, 8, 32][1], "micro-batches",
          kind="derived", at_least=least, at_most=most)

# %% [markdown]
# The table holds two lessons. 1F1B has the bubble of GPipe: what it saves is memory,
# because a rank starts backward passes before all forward passes are done. And the
# schedules that shrink the bubble pay in another coin: interleaving sends twice as often
# and holds more micro-batches in flight.
#
# More micro-batches are the cure that works with every schedule. But they make the global
# batch larger, or each of them smaller.

# %% alt="Lines of the bubble against micro-batches: all fall, the zero-bubble schedule is lowest."
batches = [8, 16, 32, 64]
curves = {name: [100 * play(order_of(name, 8, m))[0] for m in batches] for name in SCHEDULES}
table("bubble-batches", "Bubble against micro-batches, 8 ranks, played from PyTorch's order of actions",
      {"batches": "Micro-batches", **{name: f"{name}, %" for name in SCHEDULES}},
      [{"batches": m, **{name: curve[row] for name, curve in curves.items()}} for row, m in enumerate(batches)],
      kind="derived")
_, axes = plt.subplots(figsize=(7, 3))
for (name, curve), line in zip(curves.items(), ("-", "--", "-", "-")):
    axes.plot(batches, curve, line, marker="o", label=name)
axes.set(xscale="log", xlabel="micro-batches, on 8 ranks", ylabel="bubble, %", ylim=(0, None))
axes.set_xticks(batches, batches)
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# ## Expert parallelism
#
# The tokens of a rank travel to the ranks of their experts, and the results back: two
# all-to-alls in the forward pass and two in the backward pass, plus a small one with the
# counts. Each moves every token once per chosen expert. This holds if the router spreads
# tokens evenly; if it does not, the rank with the popular experts makes all wait.

# %%
MOE_TOKENS, MOE_WIDTH, CHOSEN = 8192, 2048, 8
claim("ep-bytes", "Bytes that a rank of 8 sends for one layer of the Qwen3-30B-A3B class, 8,192 tokens per rank, "
      "evenly spread, bf16", 4 * 7 / 8 * MOE_TOKENS * CHOSEN * MOE_WIDTH * 2 / GB, "GB", kind="derived", at_least=0.93,
      at_most=0.95)

# %% [markdown]
# ## What came out, and what to do
#
# - **Check a split against one process, with SGD.** All ways above pass. A gradient that
#   is summed where it should be averaged shows at the second step.
# - **Keep tensor parallelism inside the NVLink domain.** Even one fast adapter per GPU
#   takes longer for the sums than the GPUs take to compute.
# - **Make the input of a block distributed once.** Otherwise each matrix reduces its own
#   gradient, as under the plan of transformers.
# - **Add sequence parallelism to tensor parallelism.** It sends as many bytes and shrinks
#   the activations. The logits stay whole: take the loss in chunks.
# - **For long sequences exchange keys and values, not activations.** Ulysses sends least
#   and needs enough heads. The ring sends more, to neighbors, while it computes.
# - **Give a pipeline several micro-batches per rank.** 1F1B saves memory and no time;
#   interleaving and split backward passes save time.
# - **Use expert parallelism inside a node**, and watch how evenly the router spreads.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
