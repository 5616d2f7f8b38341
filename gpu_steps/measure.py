"""Measures one step in a process of its own: `python -m gpu_steps.measure KEY`, then a line on stdin when the GPU is free.

The time of a training step is by the wall clock, the GPU waited for. That of a generated token is the time between two tokens as
`generate` hands them out.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dryrun import Job
from dryrun.answer import bench
from dryrun.tracing.step_trace import config_of

from . import steps

WARM, FEWEST, SECONDS = 3, 5, 2.0  # steps before the clock, steps and seconds on it
SMALL_SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}  # fmt: skip
SMALL_LENGTH = 32


def main() -> None:
    """Imports first, which takes long and needs no GPU; then waits for its turn."""
    step = steps.step(sys.argv[1])
    if step.model:
        importlib.import_module(config_of(step.model, step.length)[0].__module__)
    turn = json.loads(sys.stdin.readline())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = {"rates": _rates, "train": _train, "generate": _generate}[step.kind](step, device, turn["small"])
    partial = Path(turn["out"]).with_suffix(".part")  # a process that is killed while it writes leaves no half result
    partial.write_text(json.dumps(found), encoding="utf-8")
    partial.replace(turn["out"])


def _rates(step: steps.Step, device: torch.device, small: bool) -> dict[str, Any]:
    if small:
        bench.SIDE[device.type], bench.COPIED[device.type] = 256, 2**20
    found = bench.measure(device, 0.05 if small else 0.7, None)
    free, total = torch.cuda.mem_get_info() if device.type == "cuda" else (0, 0)
    rates = {rate.name: {"value": rate.value, "sustained": rate.sustained, "unit": rate.unit} for rate in found["rates"]}
    return {"rates": rates, "usable": total, "launch": _launch(device)}


def _launch(device: torch.device) -> dict[str, float]:
    """Seconds that the CPU takes for one small operator, and the GPU for one in a graph."""
    x, times = torch.ones(16, device=device), 2000
    for _ in range(100):
        x.add_(1)
    _wait(device)
    started = time.perf_counter()
    for _ in range(times):
        x.add_(1)
    found = {"eager": (time.perf_counter() - started) / times}
    _wait(device)
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                x.add_(1)
        graph.replay()
        _wait(device)
        started = time.perf_counter()
        graph.replay()
        _wait(device)
        found["graph"] = (time.perf_counter() - started) / times
    return found


def _train(step: steps.Step, device: torch.device, small: bool) -> dict[str, Any]:
    job = Job(step.model, batch=step.batch, length=step.length, **step.options)
    mixed = job.precision == "mixed" or job.method != "full"  # as Trainer runs adapters with bf16=True
    if job.precision == "fp32":
        torch.set_float32_matmul_precision("high")  # TF32, as the prediction has it
    model = _model(step, device, small, "eager" if job.attention == "eager" else "sdpa", job.precision in ("mixed", "fp32"), job.fused_loss)
    if job.method == "qlora":
        quantize(model, "nf4", device)
    model.config.use_cache = False
    model.train()
    if job.method != "full":
        model = _with_adapters(model, job.rank, job.checkpointing)
    if job.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = _optimizer(job.optimizer, [p for p in model.parameters() if p.requires_grad])
    run = torch.compile(model) if job.compiled else model
    batch = _batch(model, step.batch, SMALL_LENGTH if small else step.length, device)
    losses = []

    def train() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            loss = run(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())

    _start_counting(device)
    seconds = _times(train, device, 0.1 if small else SECONDS)
    memory = _memory(device)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {"seconds": statistics.median(seconds), "all": seconds, "losses": [float(loss) for loss in losses], "trained": trained} | memory


def _generate(step: steps.Step, device: torch.device, small: bool) -> dict[str, Any]:
    model = _model(step, device, small, "sdpa", False, False).eval()
    if step.options.get("weights"):
        quantize(model, step.options["weights"], device)
    model.generation_config.eos_token_id = None  # random weights must not end early
    ids = _batch(model, step.batch, SMALL_LENGTH if small else step.length, device)["input_ids"]
    options = {"cache_implementation": "static"} if step.options.get("cache") == "static" else {}

    def generate() -> list[float]:
        clock = _Clock()
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps.NEW, do_sample=False, pad_token_id=0, streamer=clock, **options)  # fmt: skip
        return [later - sooner for sooner, later in zip(clock.times, clock.times[1:])]

    _start_counting(device)
    generate()  # compiles, captures the graph
    first, *each = generate()
    return {"seconds": statistics.median(each), "first": first, "all": each} | _memory(device)


class _Clock:
    """A streamer that notes when the prompt and each token come. `generate` has them on the CPU by then."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def _model(step: steps.Step, device: torch.device, small: bool, attention: str, wide: bool, fused_loss: bool) -> Any:
    """The model with random weights, made on the GPU."""
    model_class, config = config_of(step.model, step.length)
    if fused_loss:
        _fuse_loss(config.model_type)
    if small:
        config = copy.deepcopy(config)
        for name, value in SMALL_SIZES.items():
            if hasattr(config, name):
                setattr(config, name, value)
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:2]
    torch.manual_seed(0)
    with device:
        return model_class._from_config(config, dtype=torch.float32 if wide else torch.bfloat16, attn_implementation=attention)


def _fuse_loss(model_type: str) -> None:
    """Liger's output layer and loss in one, and none of its other kernels."""
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    MODEL_TYPE_TO_APPLY_LIGER_FN[model_type](rope=False, swiglu=False, rms_norm=False, cross_entropy=False, fused_linear_cross_entropy=True)  # fmt: skip


def quantize(model: nn.Module, weights: str, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> None:
    """Replaces the linear layers by those of bitsandbytes, except for the output layer: nf4 with double quantization, or int8 without
    the decomposition of outliers. dtype: what nf4 is dequantized to for the matmul, fp16 on a GPU without bf16."""
    import bitsandbytes as bnb

    for name, module in list(model.named_modules()):
        if type(module) is not nn.Linear or name.endswith("lm_head"):
            continue
        sizes = {"input_features": module.in_features, "output_features": module.out_features, "bias": module.bias is not None}
        if weights == "nf4":
            new = bnb.nn.Linear4bit(**sizes, compute_dtype=dtype, quant_type="nf4", compress_statistics=True, device="meta")
            new.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True)
        else:
            # bitsandbytes 0.50 makes 8 bits of what comes from the CPU alone.
            new = bnb.nn.Linear8bitLt(**sizes, has_fp16_weights=False, device="meta")
            new.weight = bnb.nn.Int8Params(module.weight.data.cpu(), requires_grad=False, has_fp16_weights=False)
        new.bias = module.bias
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, new.to(device))
    model.is_loaded_in_4bit = weights == "nf4"
    model.is_loaded_in_8bit = weights == "int8"


def _with_adapters(model: Any, rank: int, checkpointing: bool) -> Any:
    from peft import LoraConfig, get_peft_model

    if checkpointing:
        model.enable_input_require_grads()
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"))


def _optimizer(name: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if name == "adamw_8bit":
        import bitsandbytes as bnb

        return bnb.optim.AdamW8bit(parameters, lr=1e-6)
    return torch.optim.AdamW(parameters, lr=1e-6, **{"adamw": {"fused": True}, "adamw_foreach": {"foreach": True}}[name])


def _batch(model: Any, batch: int, length: int, device: torch.device) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, model.config.get_text_config().vocab_size, (batch, length), device=device)
    classifies = "SequenceClassification" in type(model).__name__
    return {"input_ids": ids, "labels": torch.zeros(batch, dtype=torch.long, device=device) if classifies else ids}


def _times(work: Callable[[], None], device: torch.device, least: float) -> list[float]:
    """Seconds of each repeat, for at least `least` seconds and FEWEST repeats."""
    for _ in range(WARM):
        work()
    _wait(device)
    found: list[float] = []
    while len(found) < FEWEST or sum(found) < least:
        started = time.perf_counter()
        work()
        _wait(device)
        found.append(time.perf_counter() - started)
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _start_counting(device: torch.device) -> None:
    """Peaks count from here: making the model, and its narrow weights, is over."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _memory(device: torch.device) -> dict[str, int]:
    """Bytes: asked for, allocated (rounded) and reserved at the peak, and of the whole device at the end, when `generate` has freed some."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    return {"requested": stats["requested_bytes.all.peak"], "allocated": stats["allocated_bytes.all.peak"],
            "reserved": stats["reserved_bytes.all.peak"], "reserved_at_end": stats["reserved_bytes.all.current"],
            "retries": stats["num_alloc_retries"], "device": total - free}  # fmt: skip


if __name__ == "__main__":
    main()
