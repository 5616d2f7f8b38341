"""Models that differ in their sizes alone run the same operators. One profile, whose numbers are polynomials of the sizes too, answers
for all models of such a family: those of the table, those of a config.json, and one's own in words, as "llama:layers=24,hidden=2048,...".

A configuration belongs to a family if each of its fields is a size, or changes nothing that a step runs, or has the value with which
the family was traced. Whatever else it says, its model is traced.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import config_file, models

# {class of transformers: (family, what transformers takes where a config.json says nothing: a value, or None for one that follows from
# the others)}. Mistral's layers are Llama's. `config_file.OF_KIND` has each by its `model_type`.
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("llama", {"num_key_value_heads": None, "head_dim": None, "max_position_embeddings": 2048}),
    "MistralForCausalLM": ("llama", {"num_key_value_heads": 8, "head_dim": None, "max_position_embeddings": 131072, "sliding_window": 4096}),
    "Qwen2ForCausalLM": ("qwen2", {"num_key_value_heads": 32, "head_dim": None, "max_position_embeddings": 32768}),
    "Qwen3ForCausalLM": ("qwen3", {"num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 32768}),
    "Olmo2ForCausalLM": ("olmo2", {"num_key_value_heads": None, "head_dim": None, "max_position_embeddings": 2048}),
    "Phi3ForCausalLM": ("phi3", {"num_key_value_heads": None, "head_dim": None, "max_position_embeddings": 4096}),
}
TIED = ("llama", "qwen2", "qwen3")  # families that were traced with the embedding as output layer too
FEWEST_LAYERS = 5  # a profile is of two shallow models, of up to 4
LARGEST_HEAD = 256  # of the flash kernel
EXAMPLE = "llama:layers=24,hidden=2048,heads=16,ffn=5504,vocab=32000"  # of a model in words
POSITIONS = 131072  # of a model in words that does not say how many
# {field: values with which all families were traced}
SAME: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "attention_dropout": (0, None),
    "resid_pdrop": (0,),
    "embd_pdrop": (0,),
    "partial_rotary_factor": (1,),
    "use_sliding_window": (False, None),  # where Qwen's is false, a window that is named is not used
    "sliding_window": (None,),
    "output_attentions": (False, None),
    "output_hidden_states": (False, None),
    "is_encoder_decoder": (False, None),
    "chunk_size_feed_forward": (0,),
}
ROPES = (None, "default", "linear", "llama3", "yarn")  # computed once, and the same for every length; Phi-3 makes another of its "yarn"
OF_ROPES = {
    "attention_factor", "beta_fast", "beta_slow", "factor", "high_freq_factor", "low_freq_factor", "mscale", "mscale_all_dim",
    "original_max_position_embeddings", "partial_rotary_factor", "rope_theta", "rope_type", "truncate", "type",
}  # fmt: skip
NEEDED = {"num_hidden_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads", "intermediate_size": "ffn", "vocab_size": "vocab"}
OPTIONAL = {"num_key_value_heads": "kv_heads", "head_dim": "head_dim", "max_position_embeddings": "positions"}
SIZES = NEEDED | OPTIONAL
IGNORED = {
    "_attn_implementation_autoset", "_name_or_path", "architectures", "auto_map", "bos_token_id", "dtype", "eos_token_id", "id2label", "initializer_range",
    "label2id", "max_window_layers", "model_type", "original_max_position_embeddings", "pad_token_id", "pretraining_tp", "problem_type",
    "quantization_config", "return_dict", "rms_norm_eps", "rope_theta", "torch_dtype", "transformers_version", "unsloth_fixed",
    "unsloth_version", "use_cache",
}  # fmt: skip


class OfNoFamily(ValueError):
    """A model must be traced to know what it runs. The message says which field is the reason."""


@dataclass(frozen=True)
class Sizes:
    """Of a dense decoder."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int | None = None

    def symbols(self, rank: int) -> dict[str, int]:
        """{name in a profile's formulas: value}. group: query heads of a key head; joined: those and its key and value head; rank: of LoRA."""
        group = self.heads // self.kv_heads
        return {"hidden": self.hidden, "ffn": self.ffn, "kv_heads": self.kv_heads, "group": group, "joined": group + 2, "head_dim": self.head_dim,
                "vocab": self.vocab, "rank": rank}  # fmt: skip


@dataclass(frozen=True)
class Member:
    """A model of a family."""

    family: str  # the name of its profile
    model_class: str  # of transformers
    sizes: Sizes


@lru_cache(maxsize=256)
def member_of(model: str) -> Member | None:
    """The family and the sizes of a model, by name, sizes or the text of a config.json; None for a model of no family."""
    try:
        return member(*models.class_and_fields(model))
    except ValueError:  # OfNoFamily, or a name that is not known
        return None


def member(model_class: str, fields: dict[str, Any]) -> Member:
    """The family and the sizes of a transformers class with these fields of its configuration. Raises OfNoFamily, and ValueError where
    they are those of no model."""
    if model_class not in CLASSES:
        raise OfNoFamily(f"{model_class or 'its kind of model'} is not built like {', '.join(config_file.OF_KIND)}")
    family, defaults = CLASSES[model_class]
    fields = defaults | fields
    _check_the_rest(model_class, fields)
    sizes, tied = _sizes(model_class, fields), bool(fields.get("tie_word_embeddings"))
    if tied and family not in TIED:
        raise OfNoFamily("tie_word_embeddings: only models with an output layer of their own were traced")
    return Member(family + "-tied" * tied, model_class, sizes)


def _check_the_rest(model_class: str, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        if name in SAME and value not in SAME[name]:
            if name == "sliding_window" and model_class.startswith("Qwen"):
                continue
            raise OfNoFamily(f"{name} is {value!r}: only {SAME[name][0]!r} was traced")
        if name in ("rope_scaling", "rope_parameters"):
            said = value if isinstance(value, dict) else {"rope_type": value}
            kind = said.get("rope_type", said.get("type"))
            ropes = ROPES[:2] if model_class == "Phi3ForCausalLM" else ROPES
            if kind not in ropes or said.get("partial_rotary_factor", 1) != 1 or said.keys() - OF_ROPES:
                raise OfNoFamily(f"{name} is {kind!r}: its positions are computed in another way")
        elif name == "layer_types":
            if value is not None and (not isinstance(value, list) or any(kind != "full_attention" for kind in value)):
                raise OfNoFamily("layer_types: layers differ")
        elif name not in SIZES.keys() | SAME.keys() | IGNORED | {"tie_word_embeddings"}:
            raise OfNoFamily(f"{name}: it is not known whether this field changes what a step runs")


def _sizes(model_class: str, fields: dict[str, Any]) -> Sizes:
    missing = [name for name in NEEDED if name not in fields]
    if missing:
        raise OfNoFamily(f"{missing[0]} is missing")
    heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
    values: dict[str, Any] = {short: fields.get(name) for name, short in SIZES.items()}
    values["kv_heads"] = values["kv_heads"] or heads
    values["head_dim"] = values["head_dim"] or (hidden // heads if isinstance(heads, int) and heads > 0 and isinstance(hidden, int) else 0)
    for name, value in values.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"{name} is {value!r}: give a whole number, 1 or more")
    sizes = Sizes(**values)
    if sizes.hidden % sizes.heads and model_class == "LlamaForCausalLM":  # whose configuration refuses it
        raise ValueError(f"hidden is {sizes.hidden}, and {sizes.heads} heads do not divide it")
    if sizes.heads % sizes.kv_heads:
        raise ValueError(f"heads is {sizes.heads}, and {sizes.kv_heads} kv_heads do not divide it")
    if sizes.head_dim % 2:
        raise ValueError(f"head_dim is {sizes.head_dim}: rotary positions need an even one")
    if sizes.layers < FEWEST_LAYERS:
        raise OfNoFamily(f"layers is {sizes.layers}: models of fewer than {FEWEST_LAYERS} are traced whole")
    if sizes.kv_heads < 2:
        raise OfNoFamily("kv_heads is 1: a single head runs other operators")
    if sizes.head_dim > LARGEST_HEAD:
        raise OfNoFamily(f"head_dim is {sizes.head_dim}: the flash kernel takes {LARGEST_HEAD} at most")
    return sizes


def in_words(member: Member) -> str:
    """A model in words that `of_words` reads: "llama:layers=24,hidden=2048,heads=16,ffn=5504,vocab=32000"."""
    kind = next(kind for kind, model_class in config_file.OF_KIND.items() if model_class == member.model_class)
    said = {name: value for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions") if (value := getattr(member.sizes, name))}
    if said.get("positions") == POSITIONS:
        del said["positions"]
    if said["kv_heads"] == said["heads"]:
        del said["kv_heads"]
    if said["head_dim"] * said["heads"] == said["hidden"]:
        del said["head_dim"]
    return f"{kind}:" + ",".join([*(f"{name}={value}" for name, value in said.items()), *(["tied"] if member.family.endswith("-tied") else [])])


def of_words(text: str) -> str:
    """The text of the config.json that a model in words means. ValueError in one line where it means none."""
    kind, _, said = text.partition(":")
    if kind not in config_file.OF_KIND:
        close = difflib.get_close_matches(kind, config_file.OF_KIND, 1)
        raise ValueError(f"model {kind[:40]!r}: {f'did you mean {close[0]!r}?' if close else 'choose one of ' + ', '.join(config_file.OF_KIND) + '.'} Sizes follow it: {EXAMPLE}")
    full = {short: name for name, short in SIZES.items()}
    fields: dict[str, Any] = {"model_type": kind, "num_key_value_heads": None, "head_dim": None, "sliding_window": None, "tie_word_embeddings": False,
                              "pad_token_id": None, "max_position_embeddings": POSITIONS}  # fmt: skip
    said_already: set[str] = set()
    for part in filter(None, (part.strip() for part in said.split(","))):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if name == "tied" and not value:
            fields["tie_word_embeddings"] = True
        elif name not in full:
            if name == "tied":
                raise ValueError("model: tied takes no value: write tied alone, or leave it out")
            close = difflib.get_close_matches(name, [*full, "tied"], 1)
            raise ValueError(f"model: {name[:40]!r} is no size: {f'did you mean {close[0]!r}?' if close else 'choose of ' + ', '.join(full) + ', tied'}")
        elif not value.strip().isdecimal() or not 0 < int(value) <= config_file.LARGEST_NUMBER:
            raise ValueError(f"model: {name}={value[:40]!r}: give a whole number, 1 or more")
        elif name in said_already:
            raise ValueError(f"model: {name} is said twice: leave one out")
        else:
            fields[full[name]] = int(value)
        said_already.add(name)
    missing = [short for name, short in NEEDED.items() if name not in fields]
    if missing:
        raise ValueError(f"model: {', '.join(missing)} missing: {EXAMPLE}")
    if fields["num_hidden_layers"] > config_file.MOST_LAYERS:
        raise ValueError(f"model: layers={fields['num_hidden_layers']:,}: at most {config_file.MOST_LAYERS:,} makes sense")
    heads = fields["num_attention_heads"]
    fields["num_key_value_heads"] = fields["num_key_value_heads"] or heads
    if fields["head_dim"] is None and not fields["hidden_size"] % heads:
        fields["head_dim"] = fields["hidden_size"] // heads
    try:
        member(config_file.OF_KIND[kind], fields)
    except OfNoFamily:  # it is traced
        pass
    except ValueError as error:
        raise ValueError(f"model: {error}") from None
    return json.dumps(fields)

