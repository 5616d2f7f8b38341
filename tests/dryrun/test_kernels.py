"""Kernels of a traced step: FLOPs and bytes that follow from the shapes, fewer kernels when compiled, depth as a line."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import transformers_weight_conversion
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    MixtralConfig,
    OPTConfig,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)

from dryrun.cost import roofline, traces
from dryrun.step.fusion import eager, fused
from dryrun.step.kernels import Kernel
from dryrun.step.workload import Workload
from dryrun.tracing import adapters, step_trace, tracing
from dryrun.tracing.gpu_operators import GpuOperators
from dryrun.tracing.recorder import Recorder
from dryrun.tracing.step_trace import run

SIZES = '{"name": "llama", "hidden": 256, "layers": %d, "heads": 8, "kv_heads": 2, "ffn": 512, "vocab": 1000}'
TOKENS = 2 * 64
MIXTURE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)


def kernels_of(function):
    """Kernels of what the function does to fake tensors."""
    with tracing.fake(), GpuOperators(), Recorder() as recorder:
        function()
    return recorder.operators


def test_a_matrix_product_has_its_flops_its_shape_and_its_bytes():
    operators = kernels_of(
        lambda: torch.empty(64, 32, dtype=torch.bfloat16) @ torch.empty(32, 16, dtype=torch.bfloat16)
    )
    (kernel,) = eager(operators).counts
    assert (kernel.kind, kernel.flops, kernel.shape) == ("product", 2 * 64 * 32 * 16, (64, 16, 32, 1))
    assert kernel.bytes == 2 * (64 * 32 + 32 * 16 + 64 * 16)


def test_a_view_is_no_kernel_and_what_is_expanded_is_read_once():
    def expand():
        return torch.empty(1, 1000).expand(50, 1000).t() + 1.0

    (kernel,) = eager(kernels_of(expand)).counts
    assert kernel.bytes == 4 * (1000 + 50 * 1000)


def test_a_compiled_chain_is_one_kernel_that_writes_no_intermediate():
    def chain():
        return torch.empty(1000).exp().sin().mul(2.0)

    operators = kernels_of(chain)
    assert sum(eager(operators).counts.values()) == 3
    (kernel,) = fused(operators).counts
    assert kernel.bytes == 4 * (1000 + 1000)


def test_what_lies_before_and_after_a_product_is_not_one_kernel():
    def around():
        return (torch.empty(32, 32).exp() @ torch.empty(32, 32)).sin()

    counts = fused(kernels_of(around)).counts
    assert sorted(kernel.kind for kernel in counts.elements()) == ["memory", "memory", "product"]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_flops_of_a_step_are_those_that_the_memory_trace_counts(compiled):
    step = run(Workload(SIZES % 3, 2, 64, compiled=compiled))
    config = LlamaConfig(
        hidden_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2, intermediate_size=512, vocab_size=1000
    )  # fmt: skip
    counted = tracing.training_step(LlamaForCausalLM, config, 2, 64, dtype=torch.bfloat16)
    assert step.kernels.flops == counted.flops["forward"] + counted.flops["backward"]
    assert step.parameters == counted.parameters
    assert step.memory.peak == pytest.approx(counted.peak, rel=1e-5)  # the loss over the micro-batches is a number more


def test_a_deep_model_is_the_line_through_two_shallow_ones(monkeypatch):
    line = run(Workload(SIZES % 8, 2, 64))
    monkeypatch.setattr(step_trace, "FEW_LAYERS", (2, 8))
    whole = run(Workload(SIZES % 8, 2, 64))
    assert line.kernels.flops == pytest.approx(whole.kernels.flops)
    assert line.parameters == whole.parameters
    moved = [sum(kernel.bytes * count for kernel, count in step.kernels.counts.items()) for step in (line, whole)]
    assert moved[0] == pytest.approx(moved[1], rel=1e-6)


def test_checkpointing_adds_the_forward_pass_of_the_layers_again():
    plain, again = (run(Workload(SIZES % 3, 2, 64, checkpointing=every)).kernels for every in (0, 1))
    recomputed = sum(kernel.flops * count for kernel, count in again.of("recomputation").items())
    forward = sum(kernel.flops * count for kernel, count in plain.of("forward").items())
    head = 2 * TOKENS * 256 * 1000
    assert again.flops - plain.flops == recomputed
    last = 3 * 2 * TOKENS * 512 * 256  # the last product of a layer: the backward pass does not need its result
    assert recomputed == forward - head - last


def test_lora_trains_the_adapters_alone_and_skips_gradients_of_frozen_weights():
    full, small = (run(Workload(SIZES % 3, 2, 64, rank=rank, targets="all linear")) for rank in (0, 4))
    inner = 256 * (256 + 64 + 64) + 256 * 256 + 3 * 256 * 512
    heads = 4 * (4 * 256 + 256 + 64 + 64 + 256) + 4 * 3 * (256 + 512)
    assert small.trainable == 3 * heads
    assert small.parameters == full.parameters + small.trainable
    saved = full.kernels.flops - small.kernels.flops
    assert saved == pytest.approx(2 * TOKENS * (3 * inner + 256 * 1000), rel=0.2)


def test_under_autocast_adapters_copy_their_inputs_beside_16_bit_weights_and_not_beside_4_bit_ones():
    sizes = SIZES % 2
    held = {
        (four, autocast): run(Workload(sizes, 2, 64, autocast=autocast, rank=4, targets="all linear", four_bit=four)).memory.peak_by_category["activations"]
        for four in (False, True) for autocast in ("", "bfloat16")
    }  # fmt: skip
    assert held[False, "bfloat16"] > 1.1 * held[False, ""] and held[True, "bfloat16"] < 1.1 * held[True, ""]


def test_all_linear_reaches_experts_in_the_types_of_mixtures_that_peft_converts():
    converted = {kind for kind, like in transformers_weight_conversion._MODEL_TO_CONVERSION_PATTERN.items()
                 if like in transformers_weight_conversion._MOE_TARGET_MODULE_MAPPING and kind.islower()}  # fmt: skip
    assert set(adapters.EXPERTS_TOO) == converted


TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100}
OTHER_NAMES = [  # of their linear layers
    GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100),
    Qwen3NextConfig(**MIXTURE, moe_intermediate_size=32, linear_num_value_heads=4, linear_num_key_heads=2, layer_types=["linear_attention", "full_attention"]),
    DeepseekV2Config(**TINY, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=4,
                     num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1),
    OPTConfig(**{name: value for name, value in TINY.items() if name != "intermediate_size"}, ffn_dim=64, word_embed_proj_dim=32),
]


@pytest.mark.parametrize(
    "config", [MixtralConfig(**MIXTURE), Qwen3MoeConfig(**MIXTURE, moe_intermediate_size=32), GptOssConfig(**MIXTURE), *OTHER_NAMES], ids=lambda config: config.model_type
)
def test_a_model_has_as_many_trained_weights_as_peft_gives_it(config):
    with torch.device("meta"):
        theirs, ours = (AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16) for _ in range(2))
        adapters.apply(ours, 4, "all linear")
    theirs = get_peft_model(theirs, LoraConfig(r=4, target_modules="all-linear"), low_cpu_mem_usage=True)
    trained = [sorted(tuple(weight.shape) for weight in model.parameters() if weight.requires_grad) for model in (theirs, ours)]
    assert trained[0] == trained[1]


def test_a_type_that_peft_refuses_is_refused_with_its_reason():
    config = Mamba2Config(hidden_size=32, num_heads=8, head_dim=8, state_size=16, num_hidden_layers=2, vocab_size=100, n_groups=1)
    with torch.device("meta"):
        theirs, ours = (AutoModelForCausalLM.from_config(config) for _ in range(2))
    with pytest.raises(ValueError, match="incompatible with Mamba-based models"):
        get_peft_model(theirs, LoraConfig(target_modules="all-linear"))
    with pytest.raises(ValueError, match="refuses target_modules='all-linear' for models of type mamba2"):
        adapters.apply(ours, 4, "all linear")


def test_four_bit_weights_are_expanded_before_each_product():
    lora, qlora = (
        run(Workload(SIZES % 2, 2, 64, rank=4, targets="all linear", four_bit=four)) for four in (False, True)
    )
    weights = 2 * (256 * (2 * 256 + 2 * 64) + 3 * 256 * 512)
    sizes = [step.memory.peak_by_category["parameters"] for step in (lora, qlora)]
    assert sizes[0] - sizes[1] == pytest.approx((2 - 1 / 2 - 1 / 64) * weights, rel=1e-3)
    assert sum(qlora.kernels.counts.values()) > sum(lora.kernels.counts.values())
    assert qlora.kernels.flops == lora.kernels.flops


def test_an_unknown_target_is_named():
    with pytest.raises(ValueError, match="no layer of LlamaForCausalLM is called"):
        run(Workload(SIZES % 2, 2, 64, rank=4, targets="fc9_proj"))
    assert adapters.targets("q v") == ("q_proj", "qkv_proj", "query_key_value", "v_proj")


def test_a_trace_is_kept_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DRYRUN_CACHE", str(tmp_path))
    first = traces.traced(Workload(SIZES % 2, 2, 64))
    monkeypatch.setattr(step_trace, "run", None)
    assert traces.traced(Workload(SIZES % 2, 2, 64)).kernels == first.kernels


def test_a_decoded_token_reads_only_the_experts_that_it_chose():
    rows, n, k, experts = 2, 64, 32, 8
    chosen = Kernel("forward", "product", "bfloat16", 2 * rows * n * k, (1, n, k, experts), 10**9, 1)
    every = chosen._replace(flops=2 * experts * n * k)
    assert roofline._weights_read(chosen, 1.0, chosen.bytes) == 2 * rows * (n + k) + rows * n * k
    assert roofline._weights_read(every, 1.0, every.bytes) == every.bytes
