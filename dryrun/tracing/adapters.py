"""LoRA and QLoRA on a model of fake tensors: the kernels and the memory that the adapters and 4-bit weights bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What each published name for a set of target layers means.
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "gate_up_proj", "qkv_proj", "dense",
         "query_key_value", "dense_h_to_4h", "dense_4h_to_h", "fc1", "fc2")  # fmt: skip
NAMES = {
    "q": ("q_proj", "qkv_proj", "query_key_value"),
    "k": ("k_proj",),
    "v": ("v_proj",),
    "qkv": ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value"),
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "attn.c_proj": ("o_proj",),
    "output": ("o_proj", "dense"),
    "mlp": ("gate_proj", "up_proj", "down_proj", "gate_up_proj"),
    "w1": ("gate_proj",),
    "w2": ("up_proj", "down_proj"),
    "head": ("lm_head",),
}


# Where "all-linear" reaches experts, these names mean their parameters alone: peft gives a shared expert no adapters.
OF_EXPERTS = ("gate_proj", "up_proj", "down_proj")
# Types for which peft refuses "all-linear", because their own code reads the weights of out_proj.
REFUSED = ("falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h")
OUTPUTS = ("score", "classifier")  # of classification models, as peft calls them
# Types of mixtures for which peft 0.21 understands "all-linear" as it was before transformers 5 made one parameter of all experts: with
# experts and router. Of others it takes the linear layers alone.
EXPERTS_TOO = ("mixtral", "minimax", "minimax_m2", "afmoe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "glm4_moe",
               "glm4_moe_lite", "glm_moe_dsa", "glm4v_moe", "longcat_flash", "solar_open", "mellum", "qwen3_moe", "beam", "qwen3_omni_moe",
               "qwen3_omni_moe_thinker", "qwen3_omni_moe_text", "qwen3_next", "hunyuan_v1_moe", "flex_olmo", "olmoe", "exaone_moe", "cohere2_moe")  # fmt: skip


def targets(described: str | None) -> tuple[str, ...]:
    """Names of the modules that a published row, or a reader, calls its targets."""
    described = str(described or "all linear")
    if "not stated" in described:
        described = "all linear"
    found: set[str] = set()
    if "all" in described:
        found.update(EVERY)
    for word in described.replace("+", " ").replace(",", " ").split():
        found.update(NAMES.get(word, (word,) if word.endswith("_proj") else ()))
    return tuple(sorted(found))


class FourBit(torch.autograd.Function):
    """A product with a 4-bit weight: it is expanded to 16 bits before the forward product and again before the backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        return x @ _expand(packed, shape, x.dtype).t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (packed,) = ctx.saved_tensors
        return gradient @ _expand(packed, ctx.shape, gradient.dtype), None, None


def _expand(packed: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """One kernel that reads half a byte and writes a number of `dtype` for each weight."""
    return packed.unsqueeze(-1).expand(-1, 2).to(dtype).reshape(shape)


class FourBitLinear(nn.Module):
    def __init__(self, linear: nn.Linear | Conv1D) -> None:
        super().__init__()
        self.shape = _outputs_and_inputs(linear)
        elements = linear.weight.numel()
        self.register_buffer("packed", torch.empty(elements // 2, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(elements // 64 + 1, dtype=torch.uint8))  # double quantization
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = FourBit.apply(x, self.packed, self.shape)
        return out if self.bias is None else out + self.bias


class Adapter(nn.Module):
    """Wx + BAx, as peft computes it."""

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.empty(rank, inputs, dtype=dtype))
        self.b = nn.Parameter(torch.empty(outputs, rank, dtype=dtype))

    @property
    def weight(self) -> torch.Tensor:
        """That of the layer, as peft's adapters give it to a model that reads it."""
        if isinstance(self.base, FourBitLinear):
            raise ValueError("QLoRA: this model's own code reads the weights of a layer, which are packed in 4 bits then: take LoRA")
        return self.base.weight

    @property
    def bias(self) -> torch.Tensor | None:
        return self.base.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.base(x)
        # Beside 16-bit weights peft casts to its adapters' fp32 and autocast back; beside 4-bit ones it leaves the input to autocast.
        if not torch.is_autocast_enabled("cpu"):
            low = x.to(self.a.dtype)
        else:
            low = x if isinstance(self.base, FourBitLinear) else x.float()
        beside = nn.functional.linear(nn.functional.linear(low, self.a), self.b)
        if beside.shape != out.shape:
            kind = type(self.base).__name__
            raise ValueError(f"LoRA: {kind} is a linear layer that computes in groups, and peft's adapters do not fit beside it: train all weights, or other layers")
        return out + (beside * 2.0).to(out.dtype)


class ParameterAdapter(nn.Module):
    """W + BA where W is one parameter: of all experts, or of a router. The sum is made anew in each forward pass, and has a gradient."""

    def __init__(self, weight: torch.Tensor, rank: int, dtype: torch.dtype) -> None:
        super().__init__()
        *experts, outputs, inputs = weight.shape
        self.experts = experts[0] if experts else 1
        self.a = nn.Parameter(torch.empty(rank * self.experts, inputs, dtype=dtype))
        self.b = nn.Parameter(torch.empty(outputs, rank * self.experts, dtype=dtype))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        a, b = self.a.to(weight.dtype), self.b.to(weight.dtype)
        if weight.dim() == 2:
            return weight + (b @ a) * 2.0
        a = a.reshape(self.experts, -1, a.shape[-1])
        b = b.reshape(b.shape[0], -1, self.experts).permute(2, 0, 1)
        with torch.autocast("cpu", enabled=False):
            return torch.baddbmm(weight, b, a, alpha=2.0)


def apply(
    model: PreTrainedModel, rank: int, described: str | None, *, four_bit: bool = False, dtype: torch.dtype | None = None, experts: bool = True
) -> int:
    """Freezes the model and puts adapters of this rank beside the described layers. Returns how many it put. All linear layers are those
    that peft means by "all-linear": every one but the output layer."""
    wanted = targets(described)
    everywhere, kind = set(EVERY) <= set(wanted), model.config.model_type
    if everywhere and kind in REFUSED:
        raise ValueError(f"LoRA: peft refuses target_modules='all-linear' for models of type {kind}, whose code reads the weights of out_proj")
    with_experts = experts and everywhere and kind in EXPERTS_TOO
    model.requires_grad_(False)
    count, output = 0, model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if not isinstance(module, (nn.Linear, Conv1D)):
            continue
        is_output = module is output or name in OUTPUTS
        base = FourBitLinear(module) if four_bit and not is_output else module
        leaf = name.rpartition(".")[2]
        if (leaf in wanted or everywhere and not is_output) and not (with_experts and leaf in OF_EXPERTS):
            outputs, inputs = _outputs_and_inputs(module)
            base = Adapter(base, inputs, outputs, rank, dtype or module.weight.dtype)
            count += 1
        if base is not module:
            _replace(model, name, base)
    if with_experts:
        count += _beside_experts(model, rank, dtype)
    if not count:
        raise ValueError(
            f"no layer of {type(model).__name__} is called {', '.join(wanted)}: adapters need other targets"
        )
    # Checkpointing needs one input with a gradient: peft makes the embeddings' output require it.
    model.get_input_embeddings().register_forward_hook(lambda module, given, out: out.requires_grad_(True))
    return count


def _beside_experts(model: PreTrainedModel, rank: int, dtype: torch.dtype | None) -> int:
    count = 0
    for module in list(model.modules()):
        if not isinstance(getattr(module, "gate_up_proj", None), nn.Parameter):
            continue
        for name, of_name in (("gate_up_proj", 2 * rank), ("down_proj", rank)):  # two matrices are joined in the first
            weight = getattr(module, name)
            parametrize.register_parametrization(module, name, ParameterAdapter(weight, of_name, dtype or weight.dtype), unsafe=True)
            count += 1
    for name, module in list(model.named_modules()):
        if name.endswith((".gate", ".router")) and isinstance(getattr(module, "weight", None), nn.Parameter) and not isinstance(module, nn.Linear):
            parametrize.register_parametrization(module, "weight", ParameterAdapter(module.weight, rank, dtype or module.weight.dtype), unsafe=True)
            count += 1
    return count


def _outputs_and_inputs(linear: nn.Linear | Conv1D) -> tuple[int, int]:
    rows, columns = linear.weight.shape
    return (rows, columns) if isinstance(linear, nn.Linear) else (columns, rows)


def _replace(model: nn.Module, name: str, new: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, new)
