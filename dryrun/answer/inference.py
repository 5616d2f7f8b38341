"""Text generated on named GPUs: does it fit, for how many users, how long a context, and how fast.

*Weights on a GPU + KV cache on a GPU + reserve <= memory of the GPU.* The reserve is for what a prompt needs beside its cache, the
CUDA context, communication buffers and rounding. Seconds are those of `timing`: low and high come from published rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from ..cost import decoding, shared_memory, timing
from ..cost.roofline import BEFORE_AMPERE
from ..cost.traces import traced
from ..models import models
from ..models.config_file import INSTALL
from ..step.workload import Traced, Workload
from ..tables.formats import K_BLOCK, OF_LLAMA_CPP, UNEVEN_ROWS, WEIGHT_BYTES, WHOLE_MODEL
from ..tables.hardware import GiB
from ..tables.refusal import Refusal
from .job import LARGEST_COUNT, Cluster, Generation
from .verdict import Code, Fit, Verdict

LEAST, RESERVE = 0.7 * GiB, 2 * GiB  # beside weights and cache: at least, and to be sure
UNPREDICTED = ("nf4",)  # decoding with bitsandbytes: no published rows
WITHOUT_FP8 = ("pascal", "volta")  # https://docs.vllm.ai/en/v0.32.0/features/quantization/llm_compressor/fp8/
GIVEN_TO_VLLM, GIVEN_AT_MOST = 0.9, 0.97  # of a GPU's memory: by default, and where nothing else is on it
MOST_SEQUENCES = 1024  # that are asked of vLLM
MOST_SLOTS = 64  # that are asked of llama.cpp: it is made for few users
OFFERED = ("bf16", "fp8", "int4-128")  # formats that are tried where the one asked for does not fit
OFFERED_OF_LLAMA_CPP = ("bf16", "q8_0", "q4_k_m")  # and on machines with one memory for CPU and GPU


@dataclass(frozen=True)
class Served:
    """What a `Generation` needs on each GPU of a `Cluster`, in bytes, and how fast it is."""

    generation: Generation
    cluster: Cluster
    traced: Traced

    @property
    def gpus(self) -> int:
        return self.cluster.gpus

    @cached_property
    def weights(self) -> float:
        """Bytes of weights on each GPU. Most formats leave the embedding and the output layer in 16 bits."""
        stored, rest = self.generation.weights, self.generation.rest
        ends = self.traced.vocabulary * self.traced.width * (1 if self.traced.tied else 2)
        of_ends = WEIGHT_BYTES[stored] if stored in WHOLE_MODEL else 2.0
        experts = self.traced.experts.parameters if rest != stored and self.traced.experts else 0
        of_layers = (self.traced.parameters - ends) * WEIGHT_BYTES[rest] + experts * (WEIGHT_BYTES[stored] - WEIGHT_BYTES[rest])
        return (of_layers + ends * of_ends + self._uneven) / self.gpus

    @property
    def _uneven(self) -> float:
        """Bytes that experts take more in a K-quant of llama.cpp, because the rows of their down projections do not divide into its blocks."""
        experts, more = self.traced.experts, UNEVEN_ROWS.get(self.generation.weights)
        if not (experts and more) or self.traced.width % K_BLOCK or not models.expert_width(self.generation.model.text) % K_BLOCK:
            return 0.0
        return experts.parameters / 3 * more  # one of an expert's three matrices

    @property
    def tokens(self) -> int:
        """Of one sequence, when its answer is complete."""
        return self.generation.prompt + self.generation.new

    def cache(self, tokens: int) -> float:
        """Bytes of the KV cache of one sequence on each GPU. GPUs share heads out; where there are fewer heads, they repeat them."""
        return self.traced.cache_on_each(tokens, self.gpus)

    @property
    def needed(self) -> float:
        """Bytes on each GPU, without the reserve."""
        return self.weights + self.generation.batch * self.cache(self.tokens)

    @property
    def expected(self) -> float:
        """Bytes on each GPU, with what a server keeps at least beside weights and cache."""
        return self.needed + LEAST

    @property
    def high(self) -> float:
        """And with what it keeps at most."""
        return self.needed + RESERVE

    @property
    def verdict(self) -> Verdict:
        fit: Fit = "maybe"
        code: Code = "server" if self.size - self.needed >= LEAST else "system"
        if self.size - self.needed >= RESERVE:
            fit, code = "fits", "gpu-memory"
        elif self.cluster.memory * shared_memory.most(self.cluster.gpu) - self.needed < LEAST:
            fit, code = "no", "gpu-memory"
        return Verdict(fit, self.expected / GiB, self.high / GiB, self.size / GiB, code)

    @property
    def size(self) -> float:
        """Bytes of each GPU that a program can use: of memory that is the computer's too, what the system leaves the GPU."""
        return shared_memory.left(self.cluster.gpu) * self.cluster.memory

    @property
    def fits(self) -> bool:
        return self.verdict.fit == "fits"

    @property
    def _room(self) -> float:
        """Bytes of each GPU that are left for caches."""
        return max(0.0, self.size - RESERVE - self.weights)

    @property
    def users(self) -> int | None:
        """Sequences of prompt + new tokens whose caches fit at once; None where a sequence keeps none that grows."""
        each = self.cache(self.tokens)
        return int(self._room // each) if each else None

    @property
    def longest(self) -> int | None:
        """Tokens of the longest single sequence that fits, at most what the model's positions allow; None where nothing limits it."""
        positions, window = self.generation.model.positions, self.traced.window
        each = self.traced.keys / min(self.gpus, self.traced.cache_heads) + self.traced.shared_keys
        room = self._room - (self.cache(window) - each * window)  # full windows, and states of one size
        if room <= 0:
            return 0
        if not each:
            return positions
        return min(int(room // each), positions or LARGEST_COUNT)

    @cached_property
    def prefill(self) -> timing.Prediction | None:
        """Until the first token of a batch, without a queue; None where only decoded tokens are predicted."""
        return self._speeds[0]

    @cached_property
    def decode(self) -> timing.Prediction:
        """One token for each sequence of the batch, in the middle of the answer."""
        return self._speeds[1]

    @cached_property
    def _speeds(self) -> tuple[timing.Prediction | None, timing.Prediction]:
        asked = self.generation
        if shared_memory.kind(self.cluster.gpu):
            return None, shared_memory.token(self.traced, _decoded(asked), self.cluster.gpu, asked.weights, asked.prompt + asked.new // 2)
        return timing.generation_parts(
            asked.model.text, asked.prompt, asked.new, self.cluster.gpu,
            batch=asked.batch, weights=asked.weights, tensor=self.gpus, rest=asked.rest,
        )  # fmt: skip

    @property
    def predicted(self) -> bool:
        """Whether its speed is predicted: it may fit, and nothing of `unpredicted` is the case."""
        return self.verdict.fit != "no" and not self.unpredicted

    @property
    def unpredicted(self) -> str:
        """In words, why no speed is predicted, or ""."""
        if self.generation.weights in UNPREDICTED:
            return f"nobody published rows of weights in {self.generation.weights} that could judge it"
        without = f"this model has no profile here, and its kernels are traced where torch and transformers are installed: {INSTALL}"
        if shared_memory.kind(self.cluster.gpu):
            known = self.traced.kernels.counts or self.traced.dense_weights
            why = shared_memory.unpredicted(self.cluster.gpu, self.gpus, self.generation.batch, self.generation.weights)
            return why or ("" if known else without) or self._unjudged
        if self.generation.weights == "fp8" and self.cluster.gpu.family in WITHOUT_FP8:
            return f"engines run fp8 from compute capability 7.5 on, and {self.cluster.gpu.label} has less: take int4-128 (GPTQ), or fp16"
        if not self.traced.kernels.counts:
            return without
        return self._unjudged or decoding.UNEXPLAINED.get(self.cluster.gpu.key, "")

    @property
    def _unjudged(self) -> str:
        found = self.traced.unjudged
        return found and f"no published run of a model with {found} was found that could judge it"

    @property
    def prefill_judged(self) -> bool:
        """Whether published rows say how far the first token may be off: none has weights of 4 bits."""
        return self.prefill is not None and WEIGHT_BYTES[self.generation.weights] >= 1

    def tried(self) -> str:
        """What `alternatives` looks at, in words."""
        narrower = ", ".join(self._narrower) or "narrower weights"
        return narrower if shared_memory.kind(self.cluster.gpu) else f"{narrower} and up to 8 of these GPUs"

    @property
    def _narrower(self) -> list[str]:
        published = self.generation.model.stored.weights
        offered = OFFERED_OF_LLAMA_CPP if shared_memory.kind(self.cluster.gpu) else tuple(dict.fromkeys((*OFFERED, published)))
        narrow = [weights for weights in offered if WEIGHT_BYTES[weights] < WEIGHT_BYTES[self.generation.weights]]
        return [weights for weights in narrow if not (weights == "fp8" and self.cluster.gpu.family in WITHOUT_FP8)]

    def alternatives(self) -> list[tuple[str, Served]]:
        """What of the same model would fit, [(options of the command, `Served`)]: narrower weights here, and on more GPUs of this kind the
        widest weights that do, until those that were asked for."""
        shared, own, narrower = shared_memory.kind(self.cluster.gpu), self.generation.weights, self._narrower
        here = ((f"--weights {weights}", self._with(weights, self.gpus)) for weights in narrower)
        found = [(option, other) for option, other in here if other and other.fits]
        for gpus in () if shared else (2, 4, 8):
            if gpus <= self.gpus:
                continue
            more = ((weights, self._with(weights, gpus)) for weights in (own, *narrower))
            weights, other = next(((weights, other) for weights, other in more if other and other.fits), ("", None))
            if other:
                found.append((f"--gpus {gpus}" + f" --weights {weights}" * (weights != own), other))
            if weights == own:
                break
        return found

    def _with(self, weights: str, gpus: int) -> Served | None:
        """The same in other weights on that many GPUs; None where heads do not divide among them."""
        try:
            return serve(replace(self.generation, weights=weights), replace(self.cluster, gpus=gpus))
        except ValueError:
            return None

    def what_fits(self) -> list[str]:
        """The alternatives, each in a line."""
        return [f"{option}: {other.needed / GiB:,.1f} GiB on each GPU" for option, other in self.alternatives()]

    def server(self) -> str:
        """A call that means the same, of vLLM, or of llama.cpp for its formats: there one cache is for all sequences."""
        if shared_memory.kind(self.cluster.gpu):  # for one reader
            return f"llama-server --model MODEL.gguf --ctx-size {self.tokens} --parallel 1"
        if self.generation.weights in OF_LLAMA_CPP:
            split = " --split-mode tensor" if self.gpus > 1 else ""
            seqs = min(self._served, MOST_SLOTS)
            return f"llama-server --model MODEL.gguf{split} --ctx-size {self.tokens * seqs} --parallel {seqs}"
        split = f" --tensor-parallel-size {self.gpus}" if self.gpus > 1 else ""
        seqs = min(self._served, MOST_SEQUENCES)
        share = math.ceil(100 * (self.weights + seqs * self.cache(self.tokens) + LEAST) / self.size) / 100
        given = f" --gpu-memory-utilization {min(share, GIVEN_AT_MOST)}" if share > GIVEN_TO_VLLM else ""
        half = " --dtype half" if self.cluster.gpu.family in BEFORE_AMPERE else ""
        return f"vllm serve MODEL{split}{half} --max-model-len {self.tokens} --max-num-seqs {seqs}{given}"

    @property
    def _served(self) -> int:
        """Sequences at once that a server is told: as many as were asked for, or all that fit where that is one."""
        return self.generation.batch if self.generation.batch > 1 else max(1, self.users or 1)

    def hours(self, tokens: float) -> tuple[float, float, float] | None:
        """(hours, low, high) of these GPUs for so many tokens of answers, their prompts read too, while the whole batch is busy; None where that
        is not predicted."""
        if not (self.predicted and self.prefill):
            return None
        answers = tokens / (self.generation.new * self.generation.batch) / 3600
        first, each, new = self.prefill, self.decode, self.generation.new
        return tuple(answers * (getattr(first, name) + new * getattr(each, name)) for name in ("seconds", "low", "high"))


def serve(generation: Generation, cluster: Cluster) -> Served:
    """`Served` of a generation on GPUs that split every matrix. ValueError where the model's heads do not divide among them."""
    if cluster.nodes > 1:
        most = cluster.gpus_per_node
        raise Refusal("gpus", cluster.gpus, "tensor parallelism is predicted inside a node", f"take {most} or fewer", nearest=[most])
    generation.check(cluster)
    return Served(generation, cluster, traced(_decoded(generation)))


def _decoded(generation: Generation) -> Workload:
    """One token of each sequence."""
    return Workload(generation.model.text, generation.batch, 1, kind="decode", compiled=True)


