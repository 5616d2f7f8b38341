"""Traces one training step of a model, from its config.json alone. No GPU, no weights, no network.

python -m dryrun path/to/config.json --batch 1 --length 4096 --checkpointing
"""

import argparse
import difflib
import json
import os
import sys
from pathlib import Path

TASKS = ("ForCausalLM", "ForMaskedLM", "LMHeadModel", "ForSequenceClassification")
PRECISIONS = ("bf16", "fp16", "fp32", "mixed")
OPTIMIZERS = ("adamw", "adamw_foreach", "adamw_loop", "sgd", "sgd_momentum")
ATTENTIONS = ("auto", "flash", "efficient", "eager")


def main(arguments=None):
    options = _parser().parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
    try:
        report(options)
    except ValueError as error:
        sys.exit(f"error: {error}")


def report(options):
    path = config_file(options.config)
    config = read_config(path)
    longest = getattr(config, "max_position_embeddings", None) or options.length
    if options.length > longest:
        raise ValueError(f"--length {options.length}: {path} has {longest} positions: take {longest} or fewer")
    model_class = class_of(config, path)

    import torch

    from .trace import training_step

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
        raise ValueError(f"{path}: transformers cannot run this model: {_one_line(error)}") from error
    print("\n".join(lines(step, model_class, options)))


def lines(step, model_class, options):
    """The report, line by line."""
    from .trace import GiB

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


def config_file(given):
    """The path of a config.json, given that path or its folder."""
    path = Path(given)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file: give a model's config.json, or the folder that holds it")
    return path


def read_config(path):
    """A transformers configuration. Nothing of the file is executed, and nothing is downloaded."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: this is no JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: this is no text: give a model's config.json") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(f'{path}: "model_type" is missing: give the config.json of a transformers model')

    from transformers import __version__, logging
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    logging.set_verbosity_error()
    kind = values["model_type"]
    if kind not in CONFIG_MAPPING:
        close = difflib.get_close_matches(kind, list(CONFIG_MAPPING), 1)
        meant = f"did you mean {close[0]!r}?" if close else "does this model need a newer transformers?"
        raise ValueError(f'{path}: "model_type" {kind!r} is unknown to transformers {__version__}: {meant}')
    try:
        return CONFIG_MAPPING[kind].from_dict(values)
    except Exception as error:  # each configuration checks its values with errors of its own kind
        raise ValueError(f"{path}: transformers refuses these values: {_one_line(error)}") from error


def class_of(config, path):
    """The class that the configuration names, if a step of it can be traced; else its language model."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    for name in config.architectures or ():
        found = getattr(transformers, name, None) if name.endswith(TASKS) else None
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"{path}: {config.model_type!r} has no language model: only those can be traced by this command")


def _one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 1 or more")
    return int(text)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m dryrun", description=__doc__.splitlines()[0])
    parser.add_argument("config", help="a model's config.json, or the folder that holds it")
    parser.add_argument("--batch", type=_positive, default=1, help="sequences (default: 1)")
    parser.add_argument("--length", type=_positive, default=2048, help="tokens of a sequence (default: 2048)")
    parser.add_argument(
        "--dtype", choices=PRECISIONS, default="bf16", help="of the weights; mixed: fp32 weights, bf16 autocast"
    )
    parser.add_argument("--checkpointing", action="store_true", help="activation checkpointing in every layer")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--attention", choices=ATTENTIONS, default="auto", help="kernel (default: what CUDA chooses)")
    return parser


if __name__ == "__main__":
    main()
