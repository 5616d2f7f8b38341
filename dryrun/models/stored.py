"""The format in which a checkpoint is published, read off the `quantization_config` of its config.json. No torch.

Many mixtures have their experts alone in 4 bits, and the rest in 8 or 16: each part has a format of its own here. What is not
known is named, and nothing is counted in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..tables.formats import WEIGHT_BYTES

SIXTEEN = "bf16"
TAKEN = "stored"  # the field of a `quantization_config` that was replaced by its `Stored`, because it lists every layer
ATTENTION = ("self_attn", "attn", "attention")  # in names of modules that stay in 16 bits
OF_ALGORITHM = {"fp8": "fp8", "fp8_pb_wo": "fp8", "fp8_pb_real": "fp8", "fp8_per_channel_per_token": "fp8", "nvfp4": "nvfp4", "nvfp4_awq": "nvfp4",
                "w4a16_nvfp4": "nvfp4", "mxfp4": "mxfp4", "w4a16_mxfp4": "mxfp4", "int8_sq": "int8"}  # fmt: skip
OF_EXPERTS = {"fp4": "mxfp4", "fp8": "fp8", "bf16": "bf16", "bfloat16": "bf16"}  # `expert_dtype` of DeepSeek-V4: blocks of 32 with a power of two


@dataclass(frozen=True)
class Stored:
    """name: what the configuration calls it, "" where nothing is quantized. experts, rest: formats of `WEIGHT_BYTES` in which the experts of
    a mixture and all other layers are stored, "" where that is not known. The embedding and the output layer stay in 16 bits."""

    name: str = ""
    experts: str = SIXTEEN
    rest: str = SIXTEEN

    @property
    def known(self) -> bool:
        return bool(self.experts and self.rest)

    @property
    def weights(self) -> str:
        """The narrowest of its formats, by which it goes."""
        return min((self.rest, self.experts), key=WEIGHT_BYTES.__getitem__) if self.known else SIXTEEN

    @property
    def in_words(self) -> str:
        """Its formats: "mxfp4 in the experts and bf16 elsewhere"."""
        return self.experts if self.experts == self.rest else f"{self.experts} in the experts and {self.rest} elsewhere"


def stored(values: dict[str, Any], mixture: bool) -> Stored:
    """How the weights of a config.json are published. values: its fields; mixture: whether it has experts."""
    text = values.get("text_config")
    parts = [part for part in (values, text) if isinstance(part, dict)]
    said = next((found for part in parts if isinstance(found := part.get("quantization_config"), dict) and found), None)
    if said is None:
        return Stored()
    if isinstance(found := said.get(TAKEN), list) and len(found) == 3:
        return Stored(*map(str, found))
    experts = next((str(part["expert_dtype"]) for part in parts if part.get("expert_dtype")), "")
    return _of_layers(said, mixture) or _of_method(said, mixture, experts)


def _of_layers(said: dict[str, Any], mixture: bool) -> Stored | None:
    """Where each layer is said to be quantized in its own way: ModelOpt's "mixed precision"."""
    layers = said.get("quantized_layers")
    if not isinstance(layers, dict) or not layers:
        return None
    of = [(str(name), _format(str(row.get("quant_algo", "")))) for name, row in layers.items() if isinstance(row, dict)]
    experts = {found for name, found in of if ".experts" in name}
    rest = {found for name, found in of if ".experts" not in name}
    if str(said.get("quant_method")) == "fp8" and not rest:  # what is not listed is as `quant_method` says
        rest = {"fp8"}
    name = str(said.get("quant_algo") or said.get("quant_method", ""))
    if not mixture or len(experts) != 1 or len(rest) > 1:
        return Stored(name.lower(), "", "")
    return Stored(name.lower(), experts.pop(), rest.pop() if rest else SIXTEEN)


def _of_method(said: dict[str, Any], mixture: bool, experts: str) -> Stored:
    method, algorithm = str(said.get("quant_method", "")).lower(), str(said.get("quant_algo") or "").lower()
    if method == "compressed-tensors":
        found = _of_groups(said)
    elif method in ("awq", "gptq", "auto-round"):
        found = _integers(said.get("bits"), said.get("group_size"))
    elif method == "bitsandbytes":
        found = "nf4" if said.get("load_in_4bit") else "int8" if said.get("load_in_8bit") else ""
    else:
        found = _format(algorithm or method)
    name = algorithm or method or "a format of its own"
    if found and experts:
        return Stored(name, OF_EXPERTS.get(experts, ""), found)
    if found and (method == "mxfp4" or _leaves_attention(said)):
        return Stored(name, found, SIXTEEN) if mixture else Stored(name, "", "")
    return Stored(name, found, found)


def _format(name: str) -> str:
    return OF_ALGORITHM.get(name.lower(), "")


def _of_groups(said: dict[str, Any]) -> str:
    """The one format of all groups of `compressed-tensors`; "" where there are several, or none that is known."""
    groups = said.get("config_groups")
    weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []
    found = {_of_weights(one) for one in weights if isinstance(one, dict)}
    return found.pop() if len(found) == 1 else ""


def _of_weights(said: dict[str, Any]) -> str:
    bits, floats, group = said.get("num_bits"), said.get("type") == "float", said.get("group_size")
    if floats:
        return {8: "fp8", 4: "nvfp4" if group == 16 else "mxfp4" if group == 32 else ""}.get(bits, "")  # type: ignore[arg-type]
    return _integers(bits, group)


def _integers(bits: Any, group: Any) -> str:
    if bits == 8:
        return "int8"
    return name if bits == 4 and (name := f"int4-{group}") in WEIGHT_BYTES else ""


def _leaves_attention(said: dict[str, Any]) -> bool:
    """Whether the projections of attention stay in 16 bits."""
    kept: list[str] = []
    for name in ("ignore", "modules_to_not_convert", "exclude_modules"):
        found = said.get(name)
        kept += [str(one) for one in found] if isinstance(found, Iterable) and not isinstance(found, (str, dict)) else []
    return any(_whole_attention(one) for one in kept)


def _whole_attention(pattern: str) -> bool:
    """Whether a pattern means all of a layer's attention: "model.layers.*.self_attn", and not one of its norms."""
    last = pattern.replace("re:", "").replace("\\", "").rstrip(".*$").rpartition(".")[2].strip("*")
    return last in (*ATTENTION, "linear_attn") or last in ("q_proj", "o_proj")
