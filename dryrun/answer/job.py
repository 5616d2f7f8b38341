"""What is asked: one training step (`Job`) or text to generate (`Generation`), on GPUs and their links (`Cluster`).

Each is checked where it is made: a name that is not known, a file that is no config.json, seven GPUs in nodes of eight are a
ValueError of one line, before anything is traced. No torch: names are looked up in tables, and a file is read and not run.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import config_file, families, models
from ..models.stored import Stored
from ..step import memory_facts, profiles
from ..step.workload import Workload
from ..tables import hardware
from ..tables.formats import WEIGHT_BYTES
from ..tables.optimizers import OPTIMIZERS
from ..tables.refusal import Refusal

PRECISIONS = ("bf16", "fp16", "fp32", "mixed")
PUBLISHED = "published"  # of weights: the format of the checkpoint
METHODS = ("full", "lora", "qlora")
OBJECTIVES = ("sft", "dpo", "grpo")
ATTENTIONS = ("auto", "flash", "efficient", "eager")
LARGEST_COUNT = 10**8  # of sequences, tokens
MOST_GPUS = 1_000_000  # of one training run: no cluster has as many
SLOWEST, FASTEST = 0.01, 100_000  # GB/s of a link: a slow network, and more than any chip sends
LARGEST_SHARED = max(row.get("memory") for row in hardware.ACCELERATORS.values() if row.shares_memory)  # GB
WITH_LOSS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "Classification", "QuestionAnswering")  # whose step has a loss
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "mixed": "float32"}


@dataclass(frozen=True)
class Model:
    """A model by name or by its config.json, without weights."""

    name: str  # as it was given: a name of `models`, or a path
    text: str = field(repr=False)  # what a `Workload` takes: a name of `models`, or the text of the config.json

    @property
    def known(self) -> bool:
        """Whether it is one of the names of `models`; else it is a file."""
        return not self.text.startswith("{")

    @cached_property
    def _read(self) -> tuple[type, Any]:
        config_file.needs_tracing()
        from ..tracing.step_trace import config_of

        with config_file.named(self.name):
            return config_of(self.text)

    @property
    def config(self) -> Any:
        """Its transformers configuration: of a model with images or sound, that of the part that reads and writes text."""
        return self._read[1]

    @property
    def model_class(self) -> type:
        """The transformers class whose code is traced."""
        return self._read[0]

    @property
    def class_name(self) -> str:
        """The name of that class."""
        return self.known and models.class_named(self.text) or self._facts["class"]

    @property
    def positions(self) -> int | None:
        """The longest sequence that its configuration allows, in tokens; None where it sets no limit."""
        return self._facts["positions"]

    @property
    def heads(self) -> int:
        """Its attention heads."""
        return self._facts["heads"]

    @property
    def image_tokens(self) -> int:
        """Tokens of one image, patches and one for the class; 0 for a model that reads text."""
        if "Image" not in self.class_name:
            return 0
        return (self.config.image_size // self.config.patch_size) ** 2 + 1

    @cached_property
    def parameters(self) -> int:
        """How many parameters the traced part has, experts that sleep included."""
        if known := self._facts["parameters"]:
            return known
        from ..tracing.step_trace import parameters

        return parameters(self.text)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """From its profile, or from its configuration."""
        if known := profiles.facts(self.text) or memory_facts.facts(self.text):
            return known
        config_file.needs_tracing()
        from ..tracing.step_trace import heads_of, positions

        return {"class": self.model_class.__name__, "positions": positions(self.config), "heads": heads_of(self.config)[0], "parameters": 0}

    @property
    def left_out(self) -> str:
        """In words, the parts that are not traced: "vision", or "" where there are none."""
        return models.left_out(self.text)

    @property
    def stored_in(self) -> str:
        """The format of the published weights where config.json says that they are quantized: "awq", "mxfp4", or ""."""
        return models.stored_in(self.text)

    @property
    def stored(self) -> Stored:
        """How the published weights are stored, the experts of a mixture and the rest."""
        return models.stored(self.text)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name that is too long
        return False


def model(given: str | Path | Model) -> Model:
    """A `Model` by its name ("llama3-8b"), by its config.json or the folder that holds it, or by its sizes in words
    ("llama:layers=24,hidden=2048,heads=16,ffn=5504,vocab=32000"). ValueError in one line, with the nearest names, where there is none."""
    if isinstance(given, Model):
        return given
    if not isinstance(given, (str, Path)):
        raise ValueError(f"model: a {type(given).__name__} is no name and no path: write its config.json (config.save_pretrained), and give that folder")
    given = str(given)
    if not given:
        raise ValueError("no model: give a name, as `dryrun models` lists them, or the path of a config.json")
    sized = "=" in given or given.partition(":")[0] in config_file.OF_KIND and not given.partition(":")[2][:1].isdigit()  # "qwen3:8b" is a name
    if given.lstrip().startswith("{"):
        raise ValueError("model: the text of a config.json cannot be given here: give the path of its file")
    if ":" in given and sized and not _exists(given):
        return Model(given, families.of_words(given))
    if not (given.endswith(".json") or _exists(given) and (os.sep in given or Path(given).is_dir())):
        return Model(given, models.known(given))
    path = config_file.config_file(given)
    text = config_file.text_of(path)
    read = config_file.parsed(text, path)
    values = config_file.with_quantization(read, path)
    if values is not read:
        text = json.dumps(values)
    if len(text) > config_file.LONGEST_TEXT:
        text = models.without_layers(values)
    if not profiles.has(text):
        config_file.needs_tracing()
        with config_file.named(str(path)):
            whole = config_file.read_config(values, path)
            config, left_out = config_file.language_model(whole)
            model_class = config_file.class_of(config, path)
            config_file.check_read(values, whole, path)
            if not left_out and not models.stored_in(text) and (name := profiles.same_as(model_class, config)):
                text = name
    return Model(given, text)


def gpu(name: str) -> hardware.Accelerator:
    """The `Accelerator` of that name, however it is spelled: "rtx-4090", "NVIDIA GeForce RTX 4090". ValueError with the nearest
    names where there is none. Its values carry their unit, source and date: `gpu("l4")["bandwidth"]`."""
    return hardware.accelerator(name)


@dataclass(frozen=True)
class Job:
    """One training step of one GPU's sequences: forward and backward pass of each micro-batch, then the optimizer.

    - `model`: a name, the path of a config.json, or a `Model`
    - `batch`: sequences of a GPU in a micro-batch, of `length` tokens each; `accumulation`: micro-batches of a step
    - `precision`: of weights, gradients and optimizer state, "bf16", "fp16" or "fp32"; or "mixed" for fp32 weights that are
      computed with in bf16
    - `method`: "full"; "lora" for 16-bit weights that stay and adapters of `rank` on every linear layer, in mixtures that peft
      knows on experts and router too; "qlora" for the same with the linear layers in 4 bits
    - `checkpointing`: the activations of every layer are computed again in the backward pass
    - `optimizer`: "adamw" is the fused one of PyTorch, "adamw_8bit" that of bitsandbytes as `Trainer` runs it, "adafactor" that of transformers, "muon"
      PyTorch's, on the matrices of layers, with AdamW on the rest; `dryrun.tables.optimizers` has all
    - `objective`: "sft", the next token; "dpo": a sequence is a pair then, and a reference model reads it too: a second copy of the
      weights under full training, the weights without their adapters under LoRA; "grpo": vLLM on the same GPU, which keeps 16-bit
      weights and caches of its own, first writes the last `new` tokens of every sequence of the step, and one more forward pass gives
      their log-probabilities. There is no reference, as by TRL's default of `beta`
    - `attention`: "auto" is the kernel that CUDA chooses, "flash" that of the FlashAttention library (Ampere and newer, in 16 bits),
      "efficient" what PyTorch takes where a batch is padded, predicted as "auto"; "eager" writes all scores
    - `compiled`: by torch.compile; `fused_loss`: a cross entropy that keeps no logits
    """

    model: Model
    batch: int = 1
    length: int = 2048
    precision: str = "bf16"
    method: str = "full"
    rank: int = 16
    optimizer: str = "adamw"
    accumulation: int = 1
    checkpointing: bool = False
    attention: str = "auto"
    compiled: bool = False
    fused_loss: bool = False
    objective: str = "sft"
    new: int = 0

    if TYPE_CHECKING:  # it takes a name too, and holds the object

        def __init__(
            self, model: Model | str | Path, batch: int = 1, length: int = 2048, precision: str = "bf16", method: str = "full",
            rank: int = 16, optimizer: str = "adamw", accumulation: int = 1, checkpointing: bool = False, attention: str = "auto",
            compiled: bool = False, fused_loss: bool = False, objective: str = "sft", new: int = 0,
        ) -> None: ...  # fmt: skip

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", model(self.model))
        for name in ("batch", "length", "rank", "accumulation"):
            _whole(name, getattr(self, name))
        if isinstance(self.new, bool) or not isinstance(self.new, int):
            raise Refusal("new", self.new, "give a whole number")
        if self.objective == "grpo" and not 1 <= self.new < self.length:
            raise Refusal("new", self.new, f"how many of the {self.length} tokens of a sequence are written? From 1 to {self.length - 1}")
        if self.objective != "grpo" and self.new:
            raise Refusal("new", self.new, "only objective='grpo' writes answers", "leave it out")
        for name in ("checkpointing", "compiled", "fused_loss"):
            _flag(name, getattr(self, name))
        for name, choices in (("precision", PRECISIONS), ("method", METHODS), ("optimizer", OPTIMIZERS), ("attention", ATTENTIONS), ("objective", OBJECTIVES)):
            hardware.known(name, getattr(self, name), choices)

    def workload(self) -> Workload:
        """What one GPU runs. ValueError where the model has fewer positions than `length`, or writes no text that could be rewarded."""
        self._check_class()
        _positions(self.model, self.length, "length")
        if self.objective != "sft" and not self.model.class_name.endswith(models.GENERATES):
            raise Refusal("objective", self.objective, f"{self.model.name}: {self.model.class_name} generates no text", "take 'sft'", nearest=["sft"])
        adapters, weights = self.method != "full", DTYPES[self.precision]
        autocast = "bfloat16" if self.precision == "mixed" else ""
        if self.method == "lora" and weights != "float32":  # adapters stay in fp32: see `traces.of_peft`
            autocast = weights
        return Workload(
            model=self.model.text,
            batch=self.sequences,
            length=self.length,
            weights=weights,
            autocast=autocast,
            checkpointing=int(self.checkpointing),
            attention="eager" if self.attention == "eager" else "fused",
            compiled=self.compiled,
            rank=self.rank if adapters else 0,
            targets="all linear" if adapters else "",
            four_bit=self.method == "qlora",
            fused_loss=self.fused_loss,
            references=int(self.objective != "sft"),
        )

    def _check_class(self) -> None:
        """ValueError where the model's class has no loss, or reads images, whose tokens nobody chooses."""
        name = self.model.class_name
        if not name.endswith(WITH_LOSS):
            raise Refusal("model", self.model.name, f"{name} has no loss of its own, so a training step of it is not known")
        tokens = self.model.image_tokens
        if tokens and self.length != tokens:
            problem, fix = f"{self.model.name} reads images, and each is {tokens} tokens", f"give length={tokens} (--length {tokens})"
            raise Refusal("length", self.length, problem, fix, nearest=[tokens])

    @property
    def sequences(self) -> int:
        """Of a micro-batch: two of each pair."""
        return self.batch * (2 if self.objective == "dpo" else 1)


@dataclass(frozen=True)
class Generation:
    """Text to generate: `batch` prompts of `prompt` tokens at once, and `new` tokens for each.

    `weights` is the format that they are stored in, such as "bf16", "fp8" or "int4-128" (4 bits, with a scale for each 128
    weights); "published" is that of the checkpoint, where its configuration says one that is known, and else "bf16". The KV cache is in 16 bits. Several GPUs split every matrix: tensor parallelism.
    """

    model: Model
    prompt: int = 1024
    new: int = 256
    batch: int = 1
    weights: str = PUBLISHED

    if TYPE_CHECKING:  # it takes a name too, and holds the object

        def __init__(
            self, model: Model | str | Path, prompt: int = 1024, new: int = 256, batch: int = 1, weights: str = "published"
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", model(self.model))
        for name in ("prompt", "new", "batch"):
            _whole(name, getattr(self, name))
        hardware.known("weights", self.weights, (PUBLISHED, *WEIGHT_BYTES))
        if self.weights == PUBLISHED:
            object.__setattr__(self, "weights", self.model.stored.weights)

    @property
    def rest(self) -> str:
        """The format of the layers that are no experts: another one where the checkpoint is published so, and is taken as it is."""
        stored = self.model.stored
        return stored.rest if stored.known and self.weights == stored.experts else self.weights

    @property
    def as_published(self) -> bool:
        """Whether the weights are those of the checkpoint."""
        return bool(self.model.stored.name) and self.model.stored.known and self.weights == self.model.stored.weights

    def check(self, cluster: Cluster) -> None:
        """ValueError where the model has too few positions, or its heads do not divide among the GPUs."""
        _positions(self.model, self.prompt + self.new, "prompt + new")
        if not self.model.class_name.endswith(models.GENERATES):
            raise Refusal("model", self.model.name, f"{self.model.class_name} generates no text, and that is what is asked here")
        heads = self.model.heads
        if cluster.gpus > 1 and cluster.gpu.family == "apple":
            raise Refusal("gpus", cluster.gpus, "a Mac has one GPU, and what several Macs hold together is not predicted", "take 1", nearest=[1])
        if heads % cluster.gpus:
            near = max(size for size in range(1, cluster.gpus) if heads % size == 0)
            raise Refusal("gpus", cluster.gpus, f"the {heads} attention heads do not divide among them", f"take {near}", nearest=[near])


@dataclass(frozen=True)
class Cluster:
    """GPUs of one kind and what links them.

    - `gpu`: a name, however it is spelled; `gpus`: of all nodes together
    - `link`: between the GPUs of a node; `network`: of one adapter of a node to other nodes. Each is GB/s in one direction as you
      measured it, or a name of dryrun/data/links.json ("100 GbE"). Without `link` it is that of the data sheet, and GeForce cards
      reach a part of their slot. Without `network` each GPU has the share that it has in published clusters of its generation
    - `adapters`: of a node, where `network` is given
    - `host_memory_gb`: GB of each node's own memory; without it no strategy with offload fits
    - `memory_gb`: GB of a machine whose GPU shares the computer's memory, such as a Mac, where it is not the size that the table has
    """

    gpu: hardware.Accelerator
    gpus: int = 1
    gpus_per_node: int = 8
    link: float | str | None = None
    network: float | str | None = None
    adapters: int = 1
    host_memory_gb: float | None = None
    memory_gb: float | None = None

    if TYPE_CHECKING:  # it takes a name too, and holds the object

        def __init__(
            self, gpu: hardware.Accelerator | str, gpus: int = 1, gpus_per_node: int = 8, link: float | str | None = None,
            network: float | str | None = None, adapters: int = 1, host_memory_gb: float | None = None, memory_gb: float | None = None,
        ) -> None: ...  # fmt: skip

    def __post_init__(self) -> None:
        if not isinstance(self.gpu, hardware.Accelerator):
            if not isinstance(self.gpu, str):
                raise Refusal("gpu", self.gpu, "give a name, such as 'rtx-4090'")
            object.__setattr__(self, "gpu", gpu(self.gpu))
        if not self.gpu.bytes:
            raise Refusal("gpu", self.gpu.key, "its memory is not known, so nothing can be said to fit")
        for name in ("gpus", "gpus_per_node", "adapters"):
            _whole(name, getattr(self, name))
            if getattr(self, name) > MOST_GPUS:
                raise Refusal(name, getattr(self, name), f"give {MOST_GPUS:,} or fewer", nearest=[MOST_GPUS])
        for name in ("link", "network"):
            if getattr(self, name) is not None:
                _rate(name, getattr(self, name))
        if self.adapters > 1 and self.network is None:
            raise Refusal("adapters", self.adapters, "of which network? Give it too, such as network='100 GbE'")
        if self.host_memory_gb is not None and not (_number(self.host_memory_gb) and 0 < self.host_memory_gb < math.inf):
            raise Refusal("host_memory_gb", self.host_memory_gb, "give GB above 0")
        if self.memory_gb is not None and not self.gpu.shares_memory:
            raise Refusal("memory_gb", self.memory_gb, f"{self.gpu.label} has memory of its own", "leave it out")
        if self.memory_gb is not None and not (_number(self.memory_gb) and 0 < self.memory_gb <= LARGEST_SHARED):
            raise Refusal("memory_gb", self.memory_gb, f"give GB above 0, at most the {LARGEST_SHARED:g} of the largest machine of the table", nearest=[LARGEST_SHARED])
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            nearest = round(self.gpus / self.gpus_per_node) * self.gpus_per_node
            fix = f"take {nearest}, or say how many a node has, gpus_per_node (--gpus-per-node of the command)"
            raise Refusal("gpus", self.gpus, f"no whole number of nodes of {self.gpus_per_node}", fix, nearest=[nearest], code="nodes")

    @property
    def nodes(self) -> int:
        return max(1, self.gpus // self.gpus_per_node)

    @property
    def gpus_in_node(self) -> int:
        return min(self.gpus, self.gpus_per_node)

    @property
    def label(self) -> str:
        """The GPU's name with its memory."""
        return self.gpu.label if self.memory_gb is None else f"{self.gpu.label.rpartition(' ')[0]} {self.memory_gb:g}GB"

    @property
    def memory(self) -> float:
        """Bytes of each GPU that a program can use, as CUDA reports them."""
        if self.memory_gb is not None:
            return self.memory_gb * hardware.GiB
        return self.gpu.usable  # type: ignore[return-value]


def _positions(model: Model, length: int, name: str) -> None:
    longest = model.positions
    if longest and length > longest:
        raise Refusal(name, length, f"{model.name} has {longest} positions", f"take {longest} or fewer", nearest=[longest], code="positions")


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_COUNT:
        raise Refusal(name, value, f"give a whole number from 1 to {LARGEST_COUNT:,}")


def _rate(name: str, value: float | str) -> None:
    if isinstance(value, str):
        hardware.known(name, value, hardware.LINKS)
    elif not _number(value) or not SLOWEST <= value <= FASTEST:
        raise Refusal(name, value, f"give GB/s from {SLOWEST:g} to {FASTEST:,} as a test of it measured them, or a name: {name}='100 GbE'")


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise Refusal(name, value, "give True or False")
