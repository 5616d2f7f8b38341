"""A model's config.json: read without executing anything of it, and the transformers class that it means."""

from __future__ import annotations

import contextlib
import difflib
import json
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Text parts that transformers has no language model for by their own name: the model whose layers they have.
SAME_LAYERS = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}
# Names that a publisher's own code has for a model, and the one that transformers reads the same fields under.
SAME_KIND = {"minimax_m3": "minimax_m3_vl_text", "kimi_k2": "deepseek_v3"}  # Kimi K2's own code is DeepSeek-V3's, and so is its class
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
LARGEST_FILE = 20_000_000  # bytes; a config.json has some thousands, and one that says of each layer how it is quantized some millions
LONGEST_TEXT = 50_000  # characters of a `quantization_config` that are kept
DEEPEST = 12  # lists and objects in each other
MOST_LAYERS = 2000
LARGEST_NUMBER = 10**9
COUNTS = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "intermediate_size", "n_layer", "n_head", "n_embd",
          "num_key_value_heads", "head_dim", "max_position_embeddings", "n_positions")  # fmt: skip
DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "depths")
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim", "model_dim", "n_embed", "hidden_dim", "embed_dim")
UNLIMITED = ("time_step", "limit", "clip")  # words in names of fields that may be infinite


def config_file(given: str | Path) -> Path:
    """The path of a config.json, given that path or its folder."""
    path = Path(given)
    try:
        if path.is_dir():
            path = path / "config.json"
        if path.is_file():
            return path
    except OSError as error:
        raise ValueError(f"{path}: it cannot be read: {error.strerror}") from None
    raise ValueError(f"{path}: there is no such file: give a model's config.json, or the folder that holds it")


def text_of(path: Path) -> str:
    """The text of a config.json."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"{path}: {path.stat().st_size:,} bytes are no config.json: give a model's config.json")
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: this is no text: give a model's config.json") from error
    except OSError as error:
        raise ValueError(f"{path}: it cannot be read: {error.strerror}") from None


def parsed(text: str, path: Path) -> dict[str, Any]:
    """The fields of the text of a config.json. path: what errors call it."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path}: lists or objects lie too deep in each other: give a model's config.json") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: this is no JSON: {error.msg}") from error
    except ValueError as error:  # a number of thousands of digits
        raise ValueError(f"{path}: a number in it is too long: {words(error)}") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(f'{path}: "model_type" is missing: give the config.json of a transformers model')
    _check_sizes(values, path)
    for part in (values, values.get("text_config")):
        if isinstance(part, dict):
            _check_part(part, path)
    return values


def with_quantization(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The fields, with what NVIDIA's ModelOpt writes into a file beside the config.json, which then says nothing of a quantization."""
    beside, text = path.with_name("hf_quant_config.json"), values.get("text_config")
    said = [part.get("quantization_config") for part in (values, text) if isinstance(part, dict)]
    if any(said) or not beside.is_file():
        return values
    try:
        quantization = json.loads(text_of(beside))["quantization"]
        if not isinstance(quantization, dict):
            raise TypeError
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
        what = f'{beside}: there is no object "quantization" in it'
        raise ValueError(f"{what}: take the file as its publisher has it, or remove it, and 16 bits are counted") from None
    return values | {"quantization_config": {"quant_method": "modelopt", **quantization}}


def _check_part(values: dict[str, Any], path: Path) -> None:
    """Refuses what transformers would read as something else."""
    quantized, tied = values.get("quantization_config"), values.get("tie_word_embeddings")
    if quantized is not None and not isinstance(quantized, dict):
        raise ValueError(f'{path}: "quantization_config" is {str(quantized)[:40]!r}, and must be an object, such as {{"quant_method": "awq"}}')
    if tied is not None and not isinstance(tied, bool):
        raise ValueError(f'{path}: "tie_word_embeddings" is {str(tied)[:40]!r}, and must be true or false')
    heads, of_keys = values.get("num_attention_heads"), values.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(of_keys, int) and heads % of_keys:
        raise ValueError(f'{path}: "num_key_value_heads" is {of_keys}, and must divide "num_attention_heads", {heads}')


def read_config(values: dict[str, Any], path: Path) -> Any:
    """A transformers configuration of the fields of a config.json. Nothing of the file is executed, and nothing is downloaded."""
    from transformers import __version__
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = SAME_KIND.get(values["model_type"], values["model_type"])
    if kind not in CONFIG_MAPPING:
        if "auto_map" in values:
            what = f'{path}: "model_type" {kind!r} comes with code of its own (auto_map), and no code of a file is run here'
            raise ValueError(f"{what}: give the config.json of a model that transformers {__version__} has")
        close = _nearest(kind, list(CONFIG_MAPPING))
        meant = f"the nearest that it has is {close!r}. Does this model need a newer transformers?" if close else "does this model need a newer transformers?"
        raise ValueError(f'{path}: "model_type" {kind!r} is unknown to transformers {__version__}: {meant}')
    try:
        return configuration(values)
    except Exception as error:  # each configuration checks its values with errors of its own kind
        raise ValueError(f"{path}: transformers refuses these values: {words(error)}") from error


def check_read(values: dict[str, Any], config: Any, path: Path) -> None:
    """Refuses where transformers reads other sizes of the part with text than the file says, such as its defaults."""
    text = config.get_text_config()
    named = next((name for name in config.sub_configs if getattr(config, name, None) is text), "") if text is not config else ""
    part = values.get(named) if named else values
    said = part if isinstance(part, dict) else values
    for names in (DEPTHS, WIDTHS):
        read = next((value for name in names if isinstance(value := getattr(text, name, None), int)), None)
        told = [(name, said[name]) for name in names if isinstance(said.get(name), int)]
        if read is not None and read not in [value for _, value in told]:
            name, value = told[0] if told else (names[0], "missing")
            where = f'"{name}" of "{named}"' if named else f'"{name}"'
            raise ValueError(f"{path}: {where} is {value}, and transformers takes {read} for it: give the whole config.json, as its publisher has it")


def _nearest(kind: str, kinds: list[str]) -> str:
    """The kind of model whose name begins alike, or is spelled alike; "" where there is none."""
    word = kind.lower().replace("-", "_")
    begins = [one for one in kinds if one.startswith(word) or len(word) > 3 and word.startswith(one + "_")]
    return min(begins, key=len, default="") or next(iter(difflib.get_close_matches(word, kinds, 1, 0.75)), "")


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

    kind = SAME_KIND.get(values["model_type"], values["model_type"])
    with _without_warnings():
        return CONFIG_MAPPING[kind].from_dict(values | {"model_type": kind})


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
        unlimited = any(word in name for word in UNLIMITED) and name not in COUNTS
        if isinstance(values, int) and values < 1 and name in COUNTS:
            raise ValueError(f'{path}: "{name}" is {values}, and must be 1 or more')
        if not abs(values) <= most and not unlimited and ("rope" not in name or abs(values) == float("inf") or values != values):
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
    text = type(config).__name__
    raise ValueError(f"{path}: {config.model_type!r} is no language model, or transformers has none for its text part alone ({text}): only those can be traced from a file")


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def words(error: BaseException) -> str:
    """What an error says, in one line, without the name of its class."""
    return " ".join(str(error).split())[:200] or "without a word"


@contextlib.contextmanager
def named(model: str) -> Iterator[None]:
    """Inside, whatever a model's own code raises on values that make no sense to it is a ValueError of one line that names the model."""
    try:
        yield
    except (ValueError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise ValueError(f"{model}: it cannot be traced: its own code needs what a trace does not give it, at {place(error)}: {words(error)}") from error


def place(error: BaseException) -> str:
    """Where an error comes from: the file and the line of the model's own code where there is one."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if "modeling_" in frame.f_code.co_filename or "configuration_" in frame.f_code.co_filename]
    frame = (own or frames)[-1]
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


INSTALL = "pip install 'torch>=2.11' 'transformers>=5.23,<6'"  # the extra `trace` of the package


def needs_tracing() -> None:
    """ModuleNotFoundError with the fix, where what runs a model's code is not installed."""
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"{name} is not installed, and runs the model's code: {INSTALL}", name=name)
