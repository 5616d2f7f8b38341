"""A model's config.json: read without executing anything of it, and the transformers class that it means."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Text parts that transformers has no language model for by their own name: the model whose layers they have.
SAME_LAYERS = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}
OF_LAYERS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "max_position_embeddings", "tie_word_embeddings", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "mlp_only_layers",
    "decoder_sparse_step",
)  # fmt: skip
# Language models whose sizes are enough to know what they run, and those whose text part is one of them.
OF_KIND = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
           "olmo2": "Olmo2ForCausalLM", "phi3": "Phi3ForCausalLM"}  # fmt: skip
WITH_TEXT = {"mistral3": "MistralForCausalLM", "qwen2_vl": "Qwen2ForCausalLM", "qwen2_5_vl": "Qwen2ForCausalLM", "qwen3_vl": "Qwen3ForCausalLM"}
TASKS = ("ForCausalLM", "ForMaskedLM", "LMHeadModel", "ForSequenceClassification")
LARGEST_FILE = 1_000_000  # bytes; a config.json has some thousands
DEEPEST = 12  # lists and objects in each other
MOST_LAYERS = 2000
LARGEST_NUMBER = 10**9
COUNTS = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "intermediate_size", "n_layer", "n_head", "n_embd")


def config_file(given: str | Path) -> Path:
    """The path of a config.json, given that path or its folder."""
    path = Path(given)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file: give a model's config.json, or the folder that holds it")
    return path


def read_values(path: Path) -> dict[str, Any]:
    """The fields of a config.json, which name its kind of model and have sizes that a model can have."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path}: {path.stat().st_size:,} bytes are no config.json: give a model's config.json")
    try:
        return parsed(path.read_text(encoding="utf-8"), path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: this is no text: give a model's config.json") from error


def parsed(text: str, path: Path) -> dict[str, Any]:
    """The fields of the text of a config.json. path: what errors call it."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: lists or objects lie too deep in each other: give a model's config.json") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: this is no JSON: {error.msg}") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(f'{path}: "model_type" is missing: give the config.json of a transformers model')
    _check_sizes(values, path)
    return values


def read_config(values: dict[str, Any], path: Path) -> Any:
    """A transformers configuration of the fields of a config.json. Nothing of the file is executed, and nothing is downloaded."""
    from transformers import __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = values["model_type"]
    if kind not in CONFIG_MAPPING:
        close = difflib.get_close_matches(kind, list(CONFIG_MAPPING), 1)
        if "auto_map" in values:
            what = f'{path}: "model_type" {kind!r} comes with code of its own (auto_map), and no code of a file is run here'
            raise ValueError(f"{what}: give the config.json of a model that transformers {__version__} has")
        meant = f"did you mean {close[0]!r}?" if close else "does this model need a newer transformers?"
        raise ValueError(f'{path}: "model_type" {kind!r} is unknown to transformers {__version__}: {meant}')
    try:
        return configuration(values)
    except Exception as error:  # each configuration checks its values with errors of its own kind
        raise ValueError(f"{path}: transformers refuses these values: {one_line(error)}") from error


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Transformers warns of fields of a config.json that change nothing here; what it logs afterwards is the caller's."""
    from transformers import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def configuration(values: dict[str, Any]) -> Any:
    """The transformers configuration of the fields of a config.json."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    with _without_warnings():
        return CONFIG_MAPPING[values["model_type"]].from_dict(values)


def _check_sizes(values: Any, path: Path, depth: int = 0, name: str = "") -> None:
    """Refuses what no model has, before it takes hours or gigabytes to build."""
    if depth > DEEPEST:
        raise ValueError(f"{path}: lists or objects lie too deep in each other: give a model's config.json")
    if isinstance(values, dict):
        for key, value in values.items():
            _check_sizes(value, path, depth + 1, str(key))
    elif isinstance(values, list):
        for value in values:
            _check_sizes(value, path, depth + 1, name)
    elif isinstance(values, (int, float)) and not isinstance(values, bool):
        most = MOST_LAYERS if "layers" in name and isinstance(values, int) else LARGEST_NUMBER
        if isinstance(values, int) and values < 1 and name in COUNTS:
            raise ValueError(f'{path}: "{name}" is {values}, and must be 1 or more')
        if not abs(values) <= most and "rope" not in name and values not in (float("inf"), float("-inf")):
            raise ValueError(f'{path}: "{name[:40]}" is {values:,}, and at most {most:,} makes sense')


def language_model(config: Any) -> tuple[Any, str]:
    """(configuration of what is traced, what it leaves out in words or ""). Of a model with images or sound, the part that reads
    and writes text."""
    text = config.get_text_config()
    if text is config or config.is_encoder_decoder:
        return config, ""
    text.architectures = None  # those of the whole
    left_out = [name.removesuffix("_config") for name in config.sub_configs if getattr(config, name, None) not in (None, text)]
    if text.model_type in SAME_LAYERS:
        fields = {name: getattr(text, name) for name in OF_LAYERS if getattr(text, name, None) is not None}
        fields["tie_word_embeddings"] = getattr(config, "tie_word_embeddings", False)
        text = configuration({"model_type": SAME_LAYERS[text.model_type], **fields})
    return text, " and ".join(left_out)


def class_and_fields(values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(name of the transformers class, fields of its configuration) of the part of a config.json that reads and writes text, without
    transformers: ("", {}) where only that knows them."""
    kind, text = values["model_type"], values.get("text_config")
    if kind in WITH_TEXT:
        text_class, given = WITH_TEXT[kind], text if isinstance(text, dict) else values
        if "_vl" not in kind:
            return (text_class, given) if given.get("model_type", kind) in OF_KIND else ("", {})
        if "num_key_value_heads" not in given:  # each has a default of its own
            return "", {}
        tied = values.get("tie_word_embeddings") or given.get("tie_word_embeddings") or False
        return text_class, {name: given[name] for name in OF_LAYERS if name in given} | {"tie_word_embeddings": tied}
    architectures = values.get("architectures")
    named = [str(name) for name in architectures if str(name).endswith(TASKS)] if isinstance(architectures, list) else []
    return (named or [OF_KIND.get(kind, "")])[0], values


def class_of(config: Any, path: Path) -> type[PreTrainedModel]:
    """The class that the configuration names, if a step of it can be traced; else its language model."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if config.is_encoder_decoder:
        what = f"{config.model_type!r} has an encoder and a decoder"
        raise ValueError(f"{path}: {what}, and this command traces models of one stack alone")
    for name in config.architectures or ():
        found = getattr(transformers, name, None) if str(name).endswith(TASKS) else None
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"{path}: {config.model_type!r} has no language model: only those can be traced by this command")


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def needs_tracing() -> None:
    """ModuleNotFoundError with the fix, where what runs a model's code is not installed."""
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"{name} is not installed, and runs the model's code: pip install 'dryrun[trace]'", name=name)
