"""Traces one training step of a model, from its name or config.json alone. No GPU, no weights, no network.

python -m dryrun path/to/config.json --batch 1 --length 4096 --checkpointing     # memory and FLOPs
python -m dryrun --model llama3-8b --gpu rtx-4090 --sequence 2048 --qlora 16      # does it fit, and how fast is it
python -m dryrun validate                                                        # how far off these predictions are
python -m dryrun bench --json bench.json                                         # what this machine reaches, for --machine
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

from .config_file import class_of, config_file, language_model, one_line, read_config

PRECISIONS = ("bf16", "fp16", "fp32", "mixed")
OPTIMIZERS = ("adamw", "adamw_foreach", "adamw_loop", "sgd", "sgd_momentum")
ATTENTIONS = ("auto", "flash", "efficient", "eager")
STRATEGIES = ("fsdp2", "ddp")
LARGEST_COUNT = 10**8  # of sequences, tokens, GPUs
WITH_GPU = ("lora", "qlora", "compile", "fused_loss", "gpus", "gpus_per_node", "strategy", "accumulation", "link", "json")


def main(arguments=None):
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] in (["validate"], ["fit"]):
        return _figures(arguments)
    if arguments[:1] == ["bench"]:
        from . import bench

        return bench.main(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        predicted(options) if options.gpu or options.machine else report(options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing was written but finished traces", file=sys.stderr)
        return 130
    return 0


def _figures(arguments):
    """The commands that read published measurements."""
    parser = argparse.ArgumentParser(prog=f"python -m dryrun {arguments[0]}")
    if arguments[0] == "fit":
        parser.parse_args(arguments[1:])
        from . import fit, judged, published

        fit.main()
        judged.write(published.rows())
        return 0
    parser.add_argument("--rows", metavar="FILE", help="measurements in the schema of dryrun/data/published.json")
    parser.add_argument("--plan", action="store_true", help="compare plan() with published strategies")
    options = parser.parse_args(arguments[1:])
    if options.plan:
        from . import validate_plan

        return validate_plan.main()
    from . import validate

    return validate.main(options.rows)


def predicted(options):
    """Prints whether the step fits the GPU, how fast it is and what would help."""
    from .hardware import accelerator
    from .roofline import processor

    constants = _of_machine(options) if options.machine else None
    processor(options.gpu)  # before the seconds that a trace takes
    from transformers import logging

    from .answer import answer, as_json, changes, lines

    logging.set_verbosity_error()
    workload, setting = workload_of(options), setting_of(options, accelerator(options.gpu).key)
    try:
        now = answer(workload, setting, constants)
        found = changes(now)
    except Exception as error:  # whatever a model's own code raises on values that make no sense
        raise ValueError(
            f"{options.model or options.config}: this step cannot be traced: {one_line(error)}"
        ) from error
    print(json.dumps(as_json(now, found), indent=1) if options.json else "\n".join(lines(now, found)))


def _of_machine(options):
    """Constants that `bench` measured; the GPU and the link that it names go into the options."""
    from . import own_machine, timing
    from .hardware import accelerator

    found = own_machine.read(options.machine)
    if options.gpu and accelerator(options.gpu).key != found["gpu"]:
        raise ValueError(f"--gpu {options.gpu}: {options.machine} was measured on {found['gpu']}: leave --gpu out")
    options.gpu = found["gpu"]
    options.link = options.link or own_machine.link(found) / 1e9
    return own_machine.own_constants(found, timing.fitted()["constants"])


def workload_of(options):
    from . import models
    from .workload import Workload

    dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(options.dtype, "float32")
    rank = options.lora or options.qlora or 0
    return Workload(
        model=_model_of(options, models),
        batch=options.batch,
        length=options.length,
        weights=dtype,
        autocast="bfloat16" if options.dtype == "mixed" else "",
        checkpointing=int(options.checkpointing),
        attention="eager" if options.attention == "eager" else "fused",
        compiled=options.compile,
        rank=rank,
        targets="all linear" if rank else "",
        four_bit=bool(options.qlora),
        fused_loss=options.fused_loss,
    )


def _model_of(options, models):
    """A known name, or the text of a config.json."""
    given = options.model or options.config
    if not given:
        raise ValueError("no model: give --model with a name, or the path of a config.json")
    if not (given.endswith(".json") or Path(given).is_dir() or os.sep in given and Path(given).exists()):
        return models.known(given)
    path = config_file(given)
    config, _ = language_model(read_config(path))
    class_of(config, path)
    _check_length(options, config, path)
    return path.read_text(encoding="utf-8")


def _check_length(options, config, path):
    longest = getattr(config, "max_position_embeddings", None) or options.length
    if options.length > longest:
        raise ValueError(f"--length {options.length}: {path} has {longest} positions: take {longest} or fewer")


def setting_of(options, gpu):
    from . import communication
    from .roofline import processor
    from .rows import Setting
    from .timing import link_peak

    if options.gpus > options.gpus_per_node and options.gpus % options.gpus_per_node:
        what = f"--gpus {options.gpus}: no whole number of nodes of {options.gpus_per_node}"
        nearest = round(options.gpus / options.gpus_per_node) * options.gpus_per_node
        raise ValueError(f"{what}: take {nearest}, or say how many a node has: --gpus-per-node")
    return Setting(
        gpu=gpu,
        gpus=options.gpus,
        gpus_per_node=min(options.gpus, options.gpus_per_node),
        strategy=options.strategy if options.gpus > 1 else "",
        accumulation=options.accumulation,
        optimizer=options.optimizer,
        precision="tf32" if options.dtype == "fp32" else "bf16",
        network=communication.adapter(processor(gpu)),
        link=link_peak(gpu, (options.link or 0) * 1e9) if options.gpus > 1 else 0.0,
    )


def report(options):
    if not options.config and not options.model:
        raise ValueError("no model: give the path of a config.json, or --model and --gpu")
    if alone := _given(options, WITH_GPU):
        raise ValueError(f"{alone}: it needs a GPU to answer for: add --gpu, such as --gpu rtx-4090")
    path = config_file(options.config or options.model)
    config, left_out = language_model(read_config(path))
    _check_length(options, config, path)
    model_class = class_of(config, path)

    import torch

    from .tracing import training_step

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.dtype, torch.float32)
    try:
        step = training_step(
            model_class,
            config,
            options.batch,
            options.length,
            dtype=dtype,
            autocast=torch.bfloat16 if options.dtype == "mixed" else None,
            activation_checkpointing=options.checkpointing,
            optimizer=options.optimizer,
            attention=options.attention,
        )
    except Exception as error:  # whatever a model's own code raises on values that make no sense
        raise ValueError(f"{path}: transformers cannot run this model: {one_line(error)}") from error
    print("\n".join(lines(step, model_class, options)))
    if left_out:
        print(f"The part that reads and writes text, without {left_out}.")


def lines(step, model_class, options):
    """The report, line by line."""
    from .tracing import GiB

    checkpointing = "with" if options.checkpointing else "without"
    yield f"{model_class.__name__}, {step.parameters / 1e9:,.3g} billion parameters"
    yield f"{options.batch} x {options.length:,} tokens, {options.dtype}, {options.optimizer}, {checkpointing} checkpointing"
    yield ""
    yield f"{'Memory at the peak':22}{'GiB':>10}"
    for category, size in [*step.peak_by_category.items(), ("total", step.peak)]:
        yield f"{category:22}{size / GiB:10,.2f}"
    yield ""
    yield f"{'FLOPs of the step':22}{'10^12':>10}"
    flops = step.flops | {"total": step.flops["forward"] + step.flops["backward"]}
    for name, count in flops.items():
        label = {"recomputation": "  of it recomputation"}.get(name, name)
        yield f"{label:22}{count / 1e12:10,.2f}"
    yield ""
    yield "A GPU needs more memory: the CUDA context, workspaces of libraries and the allocator's rounding come on top."


def _given(options, names):
    """The first of these options that was given, as it is typed; None where none was."""
    defaults = _parser().parse_args([])
    changed = (name for name in names if getattr(options, name) != getattr(defaults, name))
    return next((f"--{name.replace('_', '-')}" for name in changed), None)


def _bandwidth(text):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give GB/s above 0, as a test of the link measured them")
    return value


def _positive(text):
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_COUNT:
        raise argparse.ArgumentTypeError(f"{text[:30]!r}: give a whole number from 1 to {LARGEST_COUNT:,}")
    return int(text)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m dryrun", description=__doc__.splitlines()[0])
    parser.add_argument("config", nargs="?", help="a model's config.json, or the folder that holds it")
    parser.add_argument("--model", help="a known model (llama3-8b, mistral-7b, gpt2, ...), or a config.json")
    parser.add_argument("--gpu", help="predict on this GPU: rtx-4090, l4, t4, a100-sxm4-80, ...")
    parser.add_argument("--batch", type=_positive, default=1, help="sequences (default: 1)")
    parser.add_argument(
        "--length", "--sequence", type=_positive, default=2048, help="tokens of a sequence (default: 2048)"
    )
    parser.add_argument(
        "--dtype", choices=PRECISIONS, default="bf16", help="of the weights; mixed: fp32 weights, bf16 autocast"
    )
    parser.add_argument("--checkpointing", action="store_true", help="activation checkpointing in every layer")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--attention", choices=ATTENTIONS, default="auto", help="kernel (default: what CUDA chooses)")
    with_gpu = parser.add_argument_group("with --gpu")
    adapters = with_gpu.add_mutually_exclusive_group()
    adapters.add_argument("--lora", type=_positive, metavar="RANK", help="adapters of this rank on every linear layer")
    adapters.add_argument(
        "--qlora", type=_positive, nargs="?", const=16, metavar="RANK", help="and weights in 4 bits (rank: 16)"
    )
    with_gpu.add_argument("--compile", action="store_true", help="torch.compile")
    with_gpu.add_argument("--fused-loss", action="store_true", help="a cross entropy that keeps no logits")
    with_gpu.add_argument("--gpus", type=_positive, default=1, help="how many (default: 1)")
    with_gpu.add_argument("--gpus-per-node", type=_positive, default=8, help="(default: 8)")
    with_gpu.add_argument("--strategy", choices=STRATEGIES, default="fsdp2", help="of many GPUs (default: fsdp2)")
    with_gpu.add_argument("--accumulation", type=_positive, default=1, help="micro-batches of a step (default: 1)")
    with_gpu.add_argument(
        "--link", type=_bandwidth, metavar="GB/S", help="measured bandwidth between GPUs, in one direction"
    )
    with_gpu.add_argument(
        "--machine", metavar="FILE", help="rates of this machine, by python -m dryrun bench --json; in place of --gpu"
    )
    with_gpu.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
