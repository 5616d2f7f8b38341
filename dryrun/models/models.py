"""Models by name or by a few sizes: the transformers class and configuration that a step is traced with. No weights.

`data/configurations.json` names them, each with the page of its config.json. A published row may give sizes instead:
hidden, layers, heads, kv_heads, ffn, vocab, and for a mixture experts and top_k.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tables.refusal import Refusal
from . import config_file
from .stored import TAKEN, Stored
from .stored import stored as of_values

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DATA = Path(__file__).parents[1] / "data" / "configurations.json"
LARGEST = {"layers": 1000, "hidden": 1_000_000, "ffn": 4_000_000, "vocab": 10_000_000, "experts": 10_000}
NEEDED = ("hidden", "layers", "heads", "ffn", "vocab")
# Words in a model's name or description that say how many matrices its feed-forward network has: three or two.
GATED = (
    "swiglu",
    "llama",
    "mistral",
    "mixtral",
    "qwen",
    "gemma",
    "granite",
    "phi3",
    "phi-3",
    "deepseek",
    "gpt-oss",
    "yi-",
)
PLAIN = ("gpt", "gelu", "relu", "opt", "falcon", "bloom", "phi", "stablelm", "pythia", "neox", "mpt", "vit", "bert")
# Words that a publisher puts behind a model's name.
AFFIXES = ("-hf", "-instruct", "-it", "-base")
NO_PARTS = ("text_config", "quantization_config", "sparse_attention_config")  # of a configuration's sections: what is traced, and how it is stored
GENERATES = ("ForCausalLM", "LMHeadModel")  # ends of the names of classes that write one token after the other
EXPERTS = ("experts", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")  # the fields that make a mixture
CHOSEN = ("num_experts_per_tok", "top_k_experts", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")  # experts of each token


def is_mixture(model: str) -> bool:
    """Whether a model, by name, sizes or the text of a config.json, is a mixture of experts."""
    values = values_of(model)
    text = values.get("text_config")
    return any(part.get(name) for part in (values, text if isinstance(text, dict) else {}) for name in EXPERTS)


def values_of(model: str) -> dict[str, Any]:
    """The fields of its configuration, given a name, sizes or the text of a config.json."""
    if model.startswith("{"):
        return json.loads(model)
    row = _table()[known(model)]
    return row.get("config") or row["fields"]


def left_out(model: str) -> str:
    """In words, the parts of a model that are not traced: "vision", or ""."""
    values = values_of(model)
    if "model_type" not in values:
        return ""
    if model.startswith("{") and class_and_fields(model)[0] not in config_file.OF_KIND.values():
        return config_file.language_model(config_file.configuration(values))[1]
    # Of the others the parts are known without transformers, which a browser has not; a test holds them against it.
    parts = [name.removesuffix("_config") for name in values if name.endswith("_config") and name not in NO_PARTS]
    return " and ".join(parts)


def stored_in(model: str) -> str:
    """The format of the published weights, where their configuration says that they are quantized: "awq", "mxfp4", or ""."""
    return stored(model).name


@lru_cache(maxsize=64)
def stored(model: str) -> Stored:
    """How its weights are published."""
    return of_values(values_of(model), is_mixture(model))


def expert_width(model: str) -> int:
    """How many values one expert of a mixture has between its matrices, as its configuration says; 0 where that is not known."""
    fields = class_and_fields(model)[1]
    of_text = fields.get("text_config")
    return int((of_text if isinstance(of_text, dict) else fields).get("moe_intermediate_size") or 0)


def without_layers(values: dict[str, Any]) -> str:
    """The text of a config.json whose `quantization_config` lists every layer, with what it comes to in place of the list."""
    text = values.get("text_config")
    found = of_values(values, is_mixture(json.dumps(values)))
    parts = values | ({"text_config": {**text, "quantization_config": None}} if isinstance(text, dict) else {})
    return json.dumps(parts | {"quantization_config": {"quant_method": found.name, TAKEN: [found.name, found.experts, found.rest]}})


def class_named(name: str) -> str:
    """The transformers class that the table names for a model, or "" where its configuration says which."""
    return str(_table()[name].get("class", ""))


def title(model: str) -> str:
    """What an answer calls a model: its name, or the `model_type` of its config.json."""
    return json.loads(model).get("model_type", "model") if model.startswith("{") else model


def addresses() -> dict[str, str]:
    """{name: the page of its config.json} of every model in the table."""
    return {name: row["source"] for name, row in _table().items()}


def holding(word: str) -> dict[str, str]:
    """`addresses` of those whose name or address holds a word."""
    return {name: address for name, address in addresses().items() if word.lower() in f"{name} {address}".lower()}


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return json.loads(DATA.read_text(encoding="utf-8"))


def configurations() -> list[str]:
    """The names in the table, without aliases."""
    return list(_table())


def names() -> list[str]:
    """Every name that `known` takes, aliases included."""
    rows = _table()
    return [*rows, *(alias for row in rows.values() for alias in row.get("aliases", ()))]


def known(name: str) -> str:
    """The name in the table of a model that somebody calls `name`; ValueError with the nearest names if there is none."""
    given = re.sub(r"[\s_:]+", "-", str(name).lower().strip().rpartition("/")[2])  # without the publisher; "Llama 3.3 70B", "qwen3:8b"
    for wanted in (given, _bare(given), _closed(given)):
        for row, values in _table().items():
            published = values["source"].partition("/blob/")[0].rpartition("/")[2].lower()
            called = (row, *values.get("aliases", ()), published, _bare(published))
            if wanted in called or wanted in map(_closed, called):
                return row
    near: dict[str, str] = {}  # of each model the spelling that is nearest
    for spelled in difflib.get_close_matches(_bare(given), names(), 9, 0.4):
        near.setdefault(next(row for row, values in _table().items() if spelled in (row, *values.get("aliases", ()))), spelled)
    close = list(near.values())[:3]
    lists = "`dryrun models` lists all names. Or give a config.json."
    raise Refusal("model", str(name)[:60], "is not known", lists, nearest=close, code="unknown")


def _closed(name: str) -> str:
    """The name without what separates its words: "llama-3.1-8b" and "llama3.1-8b" are one."""
    return re.sub(r"[-.](?=\D)|(?<=\D)-", "", name)


def _bare(name: str) -> str:
    """The name without the words that a publisher puts behind it."""
    for affix in AFFIXES:
        name = name.removesuffix(affix)
    return name


def configuration(name: str, length: int | None = None) -> tuple[type[PreTrainedModel], Any]:
    """(transformers class, its configuration) of a known name, with positions for sequences of this length."""
    import transformers

    row = _table()[known(name)]
    if "config" in row:
        return of_config(row["config"], length)
    model_class = getattr(transformers, row["class"])
    config = model_class.config_class(**row["fields"])
    return model_class, with_positions(config, length)


def of_config(values: dict[str, Any], length: int | None = None) -> tuple[type[PreTrainedModel], Any]:
    """(transformers class, configuration) that a config.json means: of a model with images or sound the part with text."""
    config, _ = config_file.language_model(config_file.configuration(values))
    return config_file.class_of(config, Path("config.json")), with_positions(config, length)


def with_positions(config: Any, length: int | None) -> Any:
    """The configuration, with room for sequences of this length: published rows stretch a model's table of positions."""
    for name in ("max_position_embeddings", "n_positions"):
        if length and getattr(config, name, None) and getattr(config, name) < length:
            setattr(config, name, length)
    return config


def from_sizes(sizes: dict[str, Any], length: int | None = None, joined: type[PreTrainedModel] | None = None) -> tuple[type[PreTrainedModel], Any]:
    """(transformers class, configuration) of a model given by its sizes, as a published row gives them. joined: its class, where it is none of
    transformers."""
    import transformers

    name, fields = fields_of_sizes(sizes)
    model_class = joined or getattr(transformers, name)
    return model_class, with_positions(model_class.config_class(**fields), length)


def fields_of_sizes(sizes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(name of the transformers class, fields of its configuration) of a model given by its sizes."""
    missing = [name for name in NEEDED if not isinstance(sizes.get(name), int)]
    if missing:
        raise ValueError(f"config: {', '.join(missing)} missing: give {', '.join(NEEDED)} as whole numbers")
    for name, most in LARGEST.items():
        if not 0 <= (sizes.get(name) or 0) <= most:
            raise ValueError(f"config: {name}={sizes[name]}: no model is that large: {most:,} at most")
    if sizes["hidden"] < 1 or sizes["layers"] < 1 or sizes["heads"] < 1:
        raise ValueError("config: hidden, layers and heads must be 1 or more")
    make = _image_model if not sizes["vocab"] else _mixture if sizes.get("experts") else _gpt if _plain(sizes) else _llama
    return make(sizes)


def class_and_fields(model: str) -> tuple[str, dict[str, Any]]:
    """(name of the transformers class, fields of its configuration) of the traced part of a model, by name, sizes or the text of a
    config.json, as far as they are known without transformers: ("", {}) where they are not."""
    if model.startswith("{"):
        values = json.loads(model)
        return config_file.class_and_fields(values) if "model_type" in values else fields_of_sizes(values)
    row = _table()[known(model)]
    return config_file.class_and_fields(row["config"]) if "config" in row else (row["class"], row["fields"])


def _plain(sizes: dict[str, Any]) -> bool:
    """Whether the feed-forward network has two matrices, not the three of SwiGLU."""
    described = f"{sizes.get('arch', '')} {sizes.get('name', '')}".lower()
    if any(word in described for word in GATED):
        return False
    if any(word in described for word in PLAIN):
        return True
    head = sizes.get("head_dim") or sizes["hidden"] // sizes["heads"]
    attention = 2 * sizes["hidden"] * head * (sizes["heads"] + (sizes.get("kv_heads") or sizes["heads"]))
    if sizes.get("parameters"):
        rest = sizes["parameters"] - sizes["layers"] * attention - sizes["hidden"] * sizes["vocab"]
        return rest < 2.6 * sizes["layers"] * sizes["hidden"] * sizes["ffn"]
    return sizes["ffn"] == 4 * sizes["hidden"]


def _common(sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "hidden_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes.get("kv_heads") or sizes["heads"],
        "head_dim": sizes.get("head_dim") or sizes["hidden"] // sizes["heads"],
        "vocab_size": sizes["vocab"],
        "max_position_embeddings": 2048,
        "tie_word_embeddings": bool(sizes.get("tied")),
    }


def _llama(sizes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    fields = {"intermediate_size": sizes["ffn"], **_common(sizes)}
    if sizes["hidden"] % sizes["heads"]:  # Llama's configuration refuses these
        return "MistralForCausalLM", {**fields, "sliding_window": None}
    return "LlamaForCausalLM", {**fields, "attention_bias": "bias" in str(sizes.get("arch", ""))}


def _gpt(sizes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A GPT whose heads need not divide its width, and may share keys and values."""
    described = str(sizes.get("arch", ""))
    if "NeoX" in described and not sizes["hidden"] % sizes["heads"]:
        fields = {name: value for name, value in _common(sizes).items() if name not in ("head_dim", "num_key_value_heads")}
        return "GPTNeoXForCausalLM", {"intermediate_size": sizes["ffn"], **fields}
    fields = {
        "n_embd": sizes["hidden"],
        "n_layer": sizes["layers"],
        "n_head": sizes["heads"],
        "n_inner": sizes["ffn"],
        "vocab_size": sizes["vocab"],
        "n_positions": 2048,
        **{"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    }
    if sizes.get("kv_heads") == 1:
        return "GPTBigCodeForCausalLM", {"multi_query": True, **fields}
    shared = (sizes.get("kv_heads") or sizes["heads"]) != sizes["heads"]
    if shared or sizes["hidden"] % sizes["heads"] or (sizes.get("head_dim") or 0) * sizes["heads"] not in (0, sizes["hidden"]):
        return _llama({**sizes, "ffn": round(sizes["ffn"] * 2 / 3), "arch": ""})  # as many parameters, in three matrices
    kernel = "gelu" if "written out" not in described else "gelu_new"
    return "GPT2LMHeadModel", {"activation_function": kernel, "tie_word_embeddings": "untied" not in described, **fields}


def _mixture(sizes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if sizes.get("dense_layers") or sizes.get("shared_experts"):
        raise ValueError("config: mixtures with dense layers or shared experts are not predicted yet")
    return "Qwen3MoeForCausalLM", {
        "intermediate_size": sizes["ffn"],
        "moe_intermediate_size": sizes.get("expert_ffn") or sizes["ffn"],
        "num_experts": sizes["experts"],
        "num_experts_per_tok": sizes["top_k"],
        **_common(sizes),
    }


def _image_model(sizes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A ViT whose patches make as many tokens as the row says, one of them for the class."""
    side = round((sizes.get("tokens", 197) - 1) ** 0.5)
    ffn = sizes["ffn"] if "SwiGLU" not in str(sizes.get("arch", "")) else sizes["ffn"] * 3 // 2
    return "ViTForImageClassification", {
        "hidden_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "intermediate_size": ffn,
        "image_size": 16 * side,
        "patch_size": 16,
        "num_labels": 1000,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
