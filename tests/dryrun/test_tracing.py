"""The tracer: its bytes are those of real tensors, its operators those of a GPU, at full size in little memory."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    LlamaConfig,
)

from dryrun.step.depth import with_layers
from dryrun.tracing.gpu_operators import FP32_UNDER_CUDA_AUTOCAST, UNMASKED_SDPA, GpuOperators
from dryrun.tracing.tracing import build_model, fake, language_batch, many_layers, training_step
from dryrun.tracing.tracker import Tracker

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=500)
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2)
BERT = BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MODELS = {"llama": (AutoModelForCausalLM, LLAMA), "bert": (AutoModelForSequenceClassification, BERT)}


def real_step(model_class, config, batch_size, length, *, dtype=torch.float32, checkpointing=False, accumulation=1):
    """The step of `training_step`, on real tensors and with the CPU's own operators; the second step counts."""
    model = model_class.from_config(config, dtype=dtype, attn_implementation="eager")
    model.config.use_cache = False
    model.train()
    if checkpointing:
        model.activation_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = language_batch(model, batch_size, length)
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with Tracker(model, optimizer, batch) as tracker:
        for _ in range(accumulation):
            loss = model(**batch).loss
            after_forward = tracker.snapshot()
            (loss / accumulation).backward()
            del loss
        optimizer.step()
        optimizer.zero_grad()
    return tracker, after_forward


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "options", [{}, {"checkpointing": True}, {"accumulation": 4}, {"dtype": torch.bfloat16}], ids=str
)
def test_traced_bytes_and_flops_equal_those_of_real_tensors(model, options):
    real, real_after_forward = real_step(*MODELS[model], 2, 48, **options)
    options = {"activation_checkpointing" if key == "checkpointing" else key: value for key, value in options.items()}
    traced = training_step(*MODELS[model], 2, 48, attention="eager", **options)
    assert traced.peak == real.peak
    assert traced.peak_by_category == {category: size for category, size in real.peak_by_category.items() if size}
    assert traced.after_forward == real_after_forward
    assert traced.flops == dict(real.flops)


def test_the_tracker_counts_what_the_allocator_hands_out():
    """The profiler hears from the allocator itself: an account that shares no code with the tracker."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
    optimizer = torch.optim.SGD(model.parameters())
    data = torch.randn(256, 512)

    def step():
        model(data).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with Tracker(model, optimizer, [data]) as tracker:
        before = tracker.total
        step()
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    held, allocated_peak = 0, 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            allocated_peak = max(allocated_peak, held)
    assert allocated_peak > 0
    assert tracker.peak - before == pytest.approx(allocated_peak, abs=4096)


@pytest.mark.parametrize(("batch_size", "length"), [(32, 512), (8, 2048), (2, 8192)])
def test_activations_are_those_of_the_published_formula(batch_size, length):
    """Korthikanti et al., 2022: a layer with dropout keeps s b h (34 + 5 a s / h) bytes in 16 bits."""
    width, layers, heads = 1024, 24, 16
    config = BertConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers, num_attention_heads=heads,
        max_position_embeddings=length,
    )  # fmt: skip
    step = training_step(
        AutoModelForSequenceClassification, config, batch_size, length, dtype=torch.bfloat16, attention="eager"
    )
    formula = layers * length * batch_size * width * (34 + 5 * heads * length / width)
    assert step.after_forward["activations"] == pytest.approx(formula, rel=0.01)


def test_weights_gradients_and_adamw_take_sixteen_bytes_per_parameter_in_fp32():
    step = training_step(AutoModelForCausalLM, LLAMA, 1, 8)
    held = sum(step.peak_by_category[category] for category in ("parameters", "gradients", "optimizer"))
    assert held / step.parameters == pytest.approx(16, rel=0.01)


def test_flops_of_a_step_are_six_per_weight_and_token_and_those_of_attention():
    tokens, length = 4 * 64, 64
    step = training_step(AutoModelForCausalLM, LLAMA, 4, length, dtype=torch.bfloat16)
    weights = step.parameters - LLAMA.vocab_size * LLAMA.hidden_size  # an embedding multiplies nothing
    norms = (2 * LLAMA.num_hidden_layers + 1) * LLAMA.hidden_size
    attention = (
        LLAMA.num_hidden_layers * 4 * length * LLAMA.hidden_size * tokens
    )  # forward; the flash kernel does 2.5x as much backward
    assert step.flops["forward"] == 2 * (weights - norms) * tokens + attention
    assert step.flops["backward"] == 4 * (weights - norms) * tokens + attention * 10 // 4


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


EVERY_HEAD = LlamaConfig(**SMALL, num_key_value_heads=SMALL["num_attention_heads"])


def attention_operators(config, dtype):
    with fake(), GpuOperators():
        model = build_model(AutoModelForCausalLM, config, dtype, UNMASKED_SDPA)
        with Operators() as operators:
            model(**language_batch(model, 1, 16)).loss.backward()
    return {name for name in operators.seen if name.startswith("_scaled_dot_product")}


@pytest.mark.parametrize(
    "config, dtype, kernel",
    [
        (LLAMA, torch.bfloat16, "_scaled_dot_product_flash_attention"),
        (EVERY_HEAD, torch.bfloat16, "_scaled_dot_product_flash_attention"),
        (EVERY_HEAD, torch.float32, "_scaled_dot_product_efficient_attention"),
    ],
)
def test_attention_runs_the_kernel_that_cuda_would_choose(config, dtype, kernel):
    assert attention_operators(config, dtype) == {kernel, f"{kernel}_backward"}


@pytest.mark.parametrize(
    ("head_sizes", "kernel"),
    [((64, 64), "flash"), ((256, 256), "flash"), ((288, 288), "efficient"), ((192, 128), "efficient")],
)
def test_heads_that_are_wide_or_of_two_sizes_run_the_memory_efficient_kernel(head_sizes, kernel):
    size, value_size = head_sizes
    with fake(), GpuOperators(), Operators() as operators:
        query, value = (torch.ones(1, 2, 16, width, dtype=torch.bfloat16) for width in (size, value_size))
        F.scaled_dot_product_attention(query, query, value)
    assert f"_scaled_dot_product_{kernel}_attention" in operators.seen


def test_multihead_attention_is_an_error_because_no_mode_sees_its_kernel():
    with fake(), GpuOperators(), pytest.raises(NotImplementedError, match="nn.MultiheadAttention .* out of sight"):
        torch.nn.MultiheadAttention(16, 2)(*3 * [torch.ones(4, 1, 16)])


def test_in_fp32_grouped_heads_run_the_math_kernel_which_keeps_every_score():
    """Flash takes no fp32, and the memory-efficient kernel no grouped heads."""
    assert LLAMA.num_key_value_heads < LLAMA.num_attention_heads
    assert attention_operators(LLAMA, torch.float32) == set()
    grouped, full = (
        [training_step(AutoModelForCausalLM, config, 1, tokens).after_forward["activations"] for tokens in (128, 512)]
        for config in (LLAMA, EVERY_HEAD)
    )
    assert full[1] / full[0] == pytest.approx(4, rel=0.05) and grouped[1] / grouped[0] > 6


def test_grouped_heads_are_not_copied_for_the_flash_kernel():
    grouped = training_step(AutoModelForCausalLM, LLAMA, 1, 256, dtype=torch.bfloat16)
    full = training_step(AutoModelForCausalLM, EVERY_HEAD, 1, 256, dtype=torch.bfloat16)
    assert grouped.after_forward["activations"] < full.after_forward["activations"]


def test_dropout_keeps_a_mask_of_one_byte_per_element():
    def activations(**options):
        return training_step(AutoModelForSequenceClassification, BertConfig(**SMALL, **options), 4, 64).after_forward[
            "activations"
        ]

    without = activations(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with_dropout = activations(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.0)
    places = 2 * SMALL["num_hidden_layers"] + 1  # after the embeddings, and twice in a layer
    elements = places * 4 * 64 * SMALL["hidden_size"]
    assert with_dropout - without == pytest.approx(elements, rel=0.05)


def test_autocast_keeps_layer_norms_in_fp32_and_copies_of_the_weights_in_bf16():
    step = training_step(AutoModelForSequenceClassification, BERT, 4, 64, autocast=torch.bfloat16)
    linear = SMALL["num_hidden_layers"] * (4 * 64 * 64 + 2 * 64 * 128)
    assert step.after_forward["weight copies"] >= 2 * linear
    with fake(), GpuOperators(), torch.autocast("cpu", dtype=torch.bfloat16):
        norm = torch.nn.LayerNorm(8)
        assert norm(torch.ones(2, 8, dtype=torch.bfloat16)).dtype == torch.float32
        assert torch.nn.Linear(8, 8)(torch.ones(2, 8)).dtype == torch.bfloat16


def test_what_runs_in_fp32_under_autocast_is_the_list_of_the_installed_pytorch():
    header = Path(torch.__file__).with_name("include").joinpath("ATen", "autocast_mode.h").read_text(encoding="utf-8")
    lists = re.findall(r"#define AT_FORALL_FP32(?:_SET_OPT_DTYPE)?\(_\)(.*?)\n\n", header, re.S)
    names = {name for one in lists for name in re.findall(r"_\((\w+)", one) if "upsample" not in name}
    assert len(lists) == 2 and len(names) > 40
    assert names <= FP32_UNDER_CUDA_AUTOCAST, sorted(names - FP32_UNDER_CUDA_AUTOCAST)
    with fake(), GpuOperators(), torch.autocast("cpu", dtype=torch.bfloat16):
        half = torch.ones(2, 8, dtype=torch.bfloat16)
        for result in (torch.nn.RMSNorm(8)(half), half.expm1(), F.l1_loss(half, half), torch.linalg.vector_norm(half)):
            assert result.dtype == torch.float32
        assert F.interpolate(half[None], scale_factor=2).dtype == torch.float32
        assert F.gelu(half).dtype == half.cos().dtype == torch.bfloat16


def test_checkpointing_computes_the_forward_pass_again_and_keeps_less():
    plain = training_step(AutoModelForCausalLM, LLAMA, 4, 256)
    checkpointed = training_step(AutoModelForCausalLM, LLAMA, 4, 256, activation_checkpointing=True)
    assert "recomputation" not in plain.flops
    assert 0 < checkpointed.flops["recomputation"] < checkpointed.flops["forward"]
    assert checkpointed.flops["backward"] - checkpointed.flops["recomputation"] == plain.flops["backward"]
    assert checkpointed.peak < plain.peak


def test_an_unknown_attention_or_optimizer_names_the_choices():
    with pytest.raises(ValueError, match="choose auto, flash or efficient"):
        GpuOperators("flash3")
    with pytest.raises(ValueError, match="adamw_foreach"):
        training_step(AutoModelForCausalLM, LLAMA, 1, 8, optimizer="adam")


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="2026-11-20: only Linux has /proc with the peak of a process")
def test_an_8b_step_is_traced_in_less_than_one_gib():
    program = r"""
import re
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from dryrun.tracing import training_step
config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                     num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False)
step = training_step(AutoModelForCausalLM, config, 1, 4096, dtype=torch.bfloat16)
print(step.parameters, step.peak_gib, int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1]) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    parameters, traced, taken = map(float, done.stdout.split())
    assert parameters > 8e9
    assert traced > 60 and taken < 1


def test_the_products_of_experts_count_as_those_of_their_tokens():
    tokens, weights, ends = torch.randn(24, 32, dtype=torch.bfloat16), torch.randn(3, 32, 16, dtype=torch.bfloat16), [4, 16, 24]
    with FlopCounterMode(display=False) as grouped:
        torch._grouped_mm(tokens, weights, offs=torch.tensor(ends, dtype=torch.int32))
    with FlopCounterMode(display=False) as one_by_one:
        for weight, start, end in zip(weights, [0, *ends], ends):
            tokens[start:end] @ weight
    assert grouped.get_total_flops() == one_by_one.get_total_flops() > 0


@pytest.mark.parametrize("model", ["bert", pytest.param("llama", marks=pytest.mark.nightly)])
def test_many_layers_from_two_shallow_models_are_those_of_the_whole_to_the_byte(model):
    model_class, config = MODELS[model]
    deep = with_layers(config, 7)
    for options in ({}, {"activation_checkpointing": True, "accumulation": 3}, {"autocast": torch.bfloat16}):
        whole, line = training_step(model_class, deep, 2, 64, **options), many_layers(model_class, deep, 2, 64, **options)
        for name in ("parameters", "peak", "peak_by_category", "after_forward", "flops"):
            assert getattr(line, name) == getattr(whole, name), (options, name)
