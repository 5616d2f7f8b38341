"""docs/inference/one-gpu.md, docs/inference/gpt-oss-hybrid-diffusion.md, docs/inference/speculative.md, docs/inference/quantization.md and docs/inference/batches-and-caches.md, sentence by sentence. Its figures are claims of its notebook."""

import contextlib
import copy
import inspect
import logging
import re
import warnings
from types import SimpleNamespace

import pytest
import torch
from programs import load, run, shown_message
from transformers import (
    AutoModelForCausalLM,
    CompileConfig,
    DeepseekV3Config,
    DiffusionGemmaForBlockDiffusion,
    DynamicCache,
    FineGrainedFP8Config,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4TextConfig,
    GenerationConfig,
    Glm4MoeConfig,
    GptOssConfig,
    LlamaConfig,
    LlamaForCausalLM,
    NVFP4Config,
    QuantizedCache,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    StaticCache,
    TorchAoConfig,
    generation,
    set_seed,
)
from transformers.cli import serve
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.integrations import nvfp4
from transformers.quantizers import quantizer_nvfp4
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING, AutoHfQuantizer
from transformers.utils.logging import warning_once

SHAPE = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)  # fmt: skip
PROMPT = torch.arange(5, 37)[None]
CPU_ONLY = pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")


def error(name):
    kind, _, message = shown_message("inference_one_gpu", name).partition(": ")
    return kind, message


def warning(name):
    return shown_message("inference_one_gpu", name)


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value).strip()


def llama(**other):
    set_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | other)).eval()


def gemma(**other):
    set_seed(0)
    sliding = dict(head_dim=32, num_key_value_heads=1, sliding_window=8, num_hidden_layers=6)
    return Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE | sliding | other)).eval()


def generate(model, ids=PROMPT, **options):
    return model.generate(ids, max_new_tokens=8, do_sample=False, **options)


def hybrid():
    """Three linear layers and a full one, as in Qwen3.5."""
    set_seed(0)
    linear = dict(
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
        num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(Qwen3_5TextConfig(**SHAPE | linear)).eval()


def gpt_oss():
    set_seed(0)
    experts = dict(num_key_value_heads=2, head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=8)
    model = AutoModelForCausalLM.from_config(GptOssConfig(**SHAPE | experts)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(parameter, std=2)
    return model


def batched(model, ids, **settings):
    """The answers of generate_batch, and how many rows and tokens each pass had."""
    passes = []
    hook = model.register_forward_pre_hook(
        lambda module, arguments, named: passes.append(named["input_ids"].numel()), with_kwargs=True
    )
    config = GenerationConfig(max_new_tokens=4, eos_token_id=-1, pad_token_id=0, **settings)
    small = ContinuousBatchingConfig(num_blocks=16, page_size=32, max_batch_tokens=64)
    found = model.generate_batch([ids], generation_config=config, continuous_batching_config=small, progress_bar=False)
    hook.remove()
    return found, passes


@pytest.fixture
def said():
    """What transformers logs."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


# The programs


@pytest.mark.parametrize(
    "name, says",
    [
        ("inference_one_gpu/fits.py", "weights 15.3 GiB, cache of 8192 tokens 1.12 GiB: room for 5"),
        ("inference_one_gpu/load.py", "torch.bfloat16 sdpa"),
        ("inference_one_gpu/first_and_later.py", "% of the limit"),
        ("inference_one_gpu/static_cache.py", "48 tokens"),
        ("inference_one_gpu/caches.py", "fp8: 48 tokens"),
        ("inference_one_gpu/quantize.py", "nf4: 1.68 MB, 24 tokens"),
        ("inference_one_gpu/batches.py", "20 answers of {16} tokens"),
        ("inference_one_gpu/continuous.py", "[8, 8, 8, 8]"),
        ("inference_one_gpu/prefix.py", "200 tokens of prefix computed once"),
        ("inference_one_gpu/chunked.py", "[128, 128, 128, 116, 1, 1, 1]"),
        ("inference_one_gpu/speculative.py", "greedy: 48 passes, 1.0 tokens for each"),
        ("inference_one_gpu/longer.py", "40960 positions, now 131072: yarn"),
    ],
)
def test_every_program_of_the_page_runs(name, says):
    assert says in run(name).stdout


def test_speculation_takes_fewer_passes_of_the_large_model():
    lines = run("inference_one_gpu/speculative.py").stdout.splitlines()
    passes = {line.split(":")[0]: int(re.search(r"(\d+) passes", line)[1]) for line in lines if "passes" in line}
    assert passes["greedy"] == 48
    assert 1 < passes["draft model"] < 30
    assert 1 < passes["prompt lookup"] < 30


# What loads, and what runs


def test_few_quantizers_let_generate_compile():
    def compiles(quantizer):
        of = quantizer.is_compileable
        return bool(of.fget(type("Any", (), {"__getattr__": lambda self, name: True})()))

    found = {name for name, quantizer in AUTO_QUANTIZER_MAPPING.items() if compiles(quantizer)}
    assert {"torchao", "fp8", "compressed-tensors"} <= found
    assert not found & {"bitsandbytes_4bit", "bitsandbytes_8bit", "gptq", "awq", "mxfp4"}


# Caches


def graphs(calls, **options):
    """How many graphs exist after each call of (new tokens, batch)."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = CompileConfig(backend="eager")
    compiled._compile_all_devices = True  # without it, generate compiles on no CPU
    model, found = llama(), []
    for tokens, batch in calls:
        ids = PROMPT[:, :8].repeat(batch, 1)
        settings = dict(cache_implementation="static", compile_config=compiled, **options)
        model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **settings)
        found.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return found


@CPU_ONLY
def test_a_longer_answer_and_a_new_batch_size_compile_again_unless_the_length_is_pinned():
    calls = [(8, 1), (8, 1), (20, 1), (8, 1), (8, 2), (8, 2)]
    assert graphs(calls) == [1, 1, 2, 2, 3, 3]
    assert graphs(calls, max_cache_len=64) == [1, 1, 1, 1, 2, 2]


def test_generate_compiles_only_on_devices_of_its_list_and_with_a_static_cache(monkeypatch):
    model, compiled = llama(), []
    caches = {"static": StaticCache(config=model.config, max_cache_len=8), "dynamic": DynamicCache(config=model.config)}
    for device in ("cuda", "xpu", "neuron", "tpu", "cpu", "mps", "hpu", "npu"):
        monkeypatch.setattr(LlamaForCausalLM, "device", SimpleNamespace(type=device))
        for name, cache in caches.items():
            if model._valid_auto_compile_criteria({"past_key_values": cache}, GenerationConfig()):
                compiled.append((device, name))
    assert compiled == [(device, "static") for device in ("cuda", "xpu", "neuron", "tpu")]


def test_a_dynamic_cache_without_configuration_keeps_the_history_of_sliding_layers():
    model, lengths = gemma(), {}
    for name, cache in (("without", DynamicCache()), ("with", DynamicCache(config=model.config))):
        with torch.no_grad():
            model(PROMPT, past_key_values=cache)
            model(PROMPT[:, :1], past_key_values=cache)
        lengths[name] = cache.layers[0].keys.shape[-2]
    assert lengths == {"without": 33, "with": 7}


def test_chunks_of_a_prompt_give_the_same_tokens():
    model = llama()
    assert torch.equal(generate(model, prefill_chunk_size=8), generate(model))


@pytest.mark.parametrize(
    "name, call",
    [
        ("cache_unknown", lambda: generate(llama(), cache_implementation="sink")),
        ("cache_both", lambda: generate(llama(), cache_implementation="static", past_key_values=DynamicCache())),
        ("cache_tuple", lambda: generate(llama(), past_key_values=((PROMPT, PROMPT),))),
        ("cache_quantized_sliding", lambda: generate(gemma(), cache_implementation="quantized", cache_config={"backend": "fp8"})),
        ("fp8_cache_bits", lambda: generate(llama(), cache_implementation="quantized",
                                            cache_config={"backend": "fp8", "nbits": 4})),
        ("prompt_over_max_length", lambda: llama().generate(PROMPT, max_length=16, do_sample=False)),
        ("assisted_batch", lambda: generate(llama(), PROMPT.repeat(2, 1), assistant_model=llama())),
        ("assisted_static", lambda: generate(llama(), assistant_model=llama(), cache_implementation="static")),
        ("torchao_string", lambda: TorchAoConfig("int8_weight_only")),
        ("flash_missing", lambda: AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE), attn_implementation="flash_attention_2")),
        ("continuous_flex", lambda: AutoModelForCausalLM.from_config(
            LlamaConfig(**SHAPE), attn_implementation="flex_attention").eval().generate_batch(
                [[5, 6]], generation_config=GenerationConfig(max_new_tokens=2, eos_token_id=-1))),
    ],
)  # fmt: skip
def test_the_message_is_that_of_the_page(name, call):
    assert raised(call) == error(name)


@CPU_ONLY
def test_a_prompt_longer_than_the_static_cache_fails_with_an_index():
    model = llama()
    short = StaticCache(config=model.config, max_cache_len=34)
    assert raised(generate, model, past_key_values=short) == error("cache_too_short")


@CPU_ONLY
def test_fp8_needs_a_gpu(tmp_path):
    llama().save_pretrained(tmp_path)
    load_fp8 = {"quantization_config": FineGrainedFP8Config(), "device_map": "cpu"}
    assert raised(AutoModelForCausalLM.from_pretrained, tmp_path, **load_fp8) == error("fp8_no_gpu")


@pytest.mark.parametrize(
    "device_map, capability, told",
    [
        ({"": 0}, (10, 0), None),
        ({"": 0}, (12, 0), None),
        ({"": 0}, (8, 9), "NVFP4 requires Blackwell"),
        ({"a": 0, "b": 1}, (10, 0), "supports one CUDA device"),
        ({"a": 0, "b": "cpu"}, (10, 0), "does not support CPU or disk offload"),
        (None, (10, 0), "requires a CUDA `device_map`"),
    ],
)
def test_nvfp4_wants_one_gpu_from_blackwell_on(device_map, capability, told, monkeypatch):
    monkeypatch.setattr(quantizer_nvfp4, "is_kernels_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    quantizer = quantizer_nvfp4.NVFP4HfQuantizer(NVFP4Config(), pre_quantized=False)
    assert quantizer.is_compileable and not quantizer.is_serializable
    with pytest.raises((RuntimeError, ValueError), match=told) if told else contextlib.nullcontext():
        quantizer.validate_environment(device_map)


def test_nvfp4_leaves_layers_with_a_bias_and_experts_in_16_bits():
    assert nvfp4._is_nvfp4_compatible(torch.nn.Linear(32, 32, bias=False))
    assert not nvfp4._is_nvfp4_compatible(torch.nn.Linear(32, 32))
    model = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**SHAPE, num_experts=4, moe_intermediate_size=32))
    experts = [module for module in model.modules() if type(module).__name__.endswith("Experts")]
    assert experts and not any(nvfp4._is_nvfp4_compatible(module) for module in experts)


def test_a_checkpoint_of_modelopt_is_read_as_if_nothing_were_packed(caplog):
    with caplog.at_level("WARNING"):
        assert not AutoHfQuantizer.supports_quant_method({"quant_method": "modelopt"})
    assert "Unknown quantization type, got modelopt" in caplog.text
    assert AutoHfQuantizer.supports_quant_method({"quant_method": "compressed-tensors"})


def test_transformers_has_no_eagle_and_no_medusa():
    names = {*dir(generation), *dir(generation.candidate_generator), *vars(GenerationConfig())}
    assert {"AssistedCandidateGenerator", "use_mtp"} <= names  # where they would be
    assert not [name for name in names if re.search("eagle|medusa", name, re.I)]


def test_load_in_4bit_is_no_argument_any_more(tmp_path):
    llama().save_pretrained(tmp_path)
    assert raised(LlamaForCausalLM.from_pretrained, tmp_path, load_in_4bit=True) == error("load_in_4bit")


def test_a_prompt_beyond_the_positions_of_the_model_gives_a_warning_and_goes_on(said):
    tokens = generate(llama(max_position_embeddings=16))
    assert tokens.shape == (1, 40)
    assert warning("prompt_over_positions") in said


def test_right_padding_gives_a_warning_and_other_tokens(said):
    model, ids = llama(), PROMPT.repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, -5:] = 0
    right = generate(model, ids, attention_mask=mask)
    alone = generate(model, ids[1:, :-5])
    assert warning("right_padding") in said
    assert not torch.equal(right[1, 32:], alone[0, 27:])
    left = torch.cat([ids[1:, -5:], ids[1:, :-5]], dim=1)  # the same tokens, with what is masked in front
    tokens = generate(model, left, attention_mask=mask.flip(1)[1:])
    assert torch.equal(tokens[0, 32:], alone[0, 27:])


@CPU_ONLY
def test_a_compile_config_that_cannot_be_followed_gives_a_warning_only(said):
    generate(llama(), cache_implementation="static", compile_config=CompileConfig())
    assert warning("compile_skipped") in said


# Attention


def test_gpt_oss_runs_eager_and_reads_its_prompt_in_chunks():
    model = gpt_oss()
    assert model.config._attn_implementation == "eager"
    assert torch.equal(generate(model, prefill_chunk_size=8), generate(model))


def test_flex_attention_takes_gpt_oss_and_a_cpu_refuses_its_sinks():
    model = AutoModelForCausalLM.from_config(gpt_oss().config, attn_implementation="flex_attention")
    told = raised(generate, model)
    assert told[0] == "ValueError" and "Attention sinks cannot be run on CPU with flex attention" in told[1]


def test_flash_attention_2_of_gpt_oss_becomes_a_kernel_with_sinks(said):
    warning_once.cache_clear()
    raised(AutoModelForCausalLM.from_config, gpt_oss().config, attn_implementation="flash_attention_2")
    instead = "falling back to `kernels-community/vllm-flash-attn3` instead of `flash_attention_2`"
    assert any(instead in line for line in said)


def test_generate_batch_of_gpt_oss_gives_the_tokens_of_generate():
    model = gpt_oss()
    alone = model.generate(PROMPT, max_new_tokens=4, do_sample=False)
    found, _ = batched(model, PROMPT[0].tolist(), do_sample=False)
    [answer] = found.values()
    assert not answer.error and answer.generated_tokens == alone[0, PROMPT.shape[1] :].tolist()


def test_the_fp8_cache_makes_the_whole_history_anew_for_each_token():
    """It keeps one byte for each number, and gives attention a copy of all of them in the model's dtype."""
    model = llama().to(torch.bfloat16)
    cache = QuantizedCache("fp8", model.config)
    with torch.no_grad():
        model(PROMPT, past_key_values=cache)
        given = [cache.layers[0].update(*torch.zeros(2, 1, 2, 1, 32, dtype=torch.bfloat16))[0] for _ in range(2)]
    kept = cache.layers[0]._quantized_keys[0]
    assert (kept.dtype, kept.shape[-2]) == (torch.float8_e4m3fn, 34)
    assert [(keys.dtype, keys.shape[-2]) for keys in given] == [(torch.bfloat16, 33), (torch.bfloat16, 34)]
    assert given[0].data_ptr() != given[1].data_ptr()


def test_the_fp8_cache_cuts_a_later_key_off_at_the_largest_of_the_prompt():
    model = llama()
    cache = QuantizedCache("fp8", model.config)
    with torch.no_grad():
        model(PROMPT, past_key_values=cache)
    largest = cache.layers[0]._dequantize(cache.layers[0]._quantized_keys).abs().max()
    later = torch.full((1, 2, 1, 32), 3 * largest.item())
    keys, _ = cache.layers[0].update(later, torch.zeros_like(later))
    assert torch.allclose(keys[..., -1, :], largest)


def test_a_hybrid_model_takes_static_caches_chunks_padding_and_a_copied_prefix(said):
    warning_once.cache_clear()  # it speaks once in a process, and another test may have made it speak
    model = hybrid()
    alone = generate(model)
    assert any(
        "`chunk_gated_delta_rule` is falling back to its reference PyTorch implementation" in line for line in said
    )
    assert torch.equal(generate(model, cache_implementation="static"), alone)
    assert torch.equal(generate(model, prefill_chunk_size=8), alone)
    left = torch.nn.functional.pad(PROMPT, (6, 0))
    assert torch.equal(generate(model, left, attention_mask=left.ne(0).long())[0, 38:], alone[0, 32:])
    with torch.no_grad():
        kept = model(PROMPT[:, :20], past_key_values=DynamicCache(config=model.config)).past_key_values
    assert torch.equal(generate(model, past_key_values=copy.deepcopy(kept)), alone)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda: batched(hybrid(), PROMPT[0].tolist()), "Invalid layer type: linear_attention"),
        (lambda: generate(hybrid(), prompt_lookup_num_tokens=3), "not supported with stateful models"),
        (lambda: generate(hybrid(), assistant_model=llama()), "not supported with stateful models"),
        (lambda: generate(hybrid(), use_mtp=True), "not supported with stateful models"),
        (
            lambda: generate(hybrid(), cache_implementation="quantized", cache_config={"backend": "fp8"}),
            "only full attention layers",
        ),
        (
            lambda: batched(
                AutoModelForCausalLM.from_config(
                    Gemma4TextConfig(
                        **SHAPE | dict(num_key_value_heads=2, head_dim=16, global_head_dim=32, num_hidden_layers=6),
                        hidden_size_per_layer_input=0,
                        num_kv_shared_layers=0,
                    )  # fmt: skip
                ),
                PROMPT[0].tolist(),
            ),
            "'head_dim' is a per-layer attribute",
        ),
    ],
    ids=["generate_batch", "lookup", "draft", "mtp", "quantized", "gemma4"],
)
def test_what_hybrid_models_and_gemma_4_refuse(call, told):
    assert told in raised(call)[1]


def test_prediction_heads_are_those_of_deepseek_and_glm():
    assert DeepseekV3Config().num_mtp_layers == Glm4MoeConfig().num_mtp_layers == 1
    assert getattr(Qwen3_5TextConfig(), "num_mtp_layers", None) is None


# Many prompts


def test_several_answers_read_the_prompt_once_in_generate_batch_and_each_time_in_generate():
    model, read = llama(), []
    found, passes = batched(model, PROMPT[0].tolist(), do_sample=True, num_return_sequences=4)
    assert len(found) == 4 and not any(answer.error for answer in found.values())
    assert passes[0] <= PROMPT.numel() and sum(passes) < 2 * PROMPT.numel()
    model.register_forward_pre_hook(
        lambda module, arguments, named: read.append(named["input_ids"].numel()), with_kwargs=True
    )
    model.generate(PROMPT, max_new_tokens=4, do_sample=True, num_return_sequences=4)
    assert read[0] == 4 * PROMPT.numel()
    read.clear()
    model.generate(PROMPT, max_new_tokens=4, do_sample=False, num_beams=4)
    assert read[0] == 4 * PROMPT.numel()


@pytest.mark.parametrize("name", ["rope_scaling", "rope_parameters"])
def test_yarn_without_theta_gives_the_message_of_the_page(name, tmp_path):
    Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=1, head_dim=32)).save_pretrained(tmp_path)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        told = raised(Qwen3ForCausalLM.from_pretrained, tmp_path, **{name: yarn})
    assert told == error("yarn_without_theta")


def test_a_diffusion_model_has_a_generate_of_its_own():
    assert DiffusionGemmaForBlockDiffusion.generate is not LlamaForCausalLM.generate


def test_a_server_switches_thoughts_off():
    assert "reasoning" in inspect.signature(serve.Serve.__init__).parameters
    assert "off" in {mode.value for mode in serve.ReasoningMode}


def test_scores_are_kept_in_fp32_for_each_new_token():
    answer = llama().generate(
        PROMPT, max_new_tokens=3, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    assert [(row.shape[-1], row.dtype) for row in answer.logits] == [(500, torch.float32)] * 3


def test_linear_states_count_when_the_program_asks_what_fits():
    made = load("inference_one_gpu/fits.py")
    made.model = hybrid().to("meta")
    short, long = made.cache_bytes(64), made.cache_bytes(128)
    full = 64 * 2 * 2 * 16 * 4  # keys and values of the one full layer, in fp32
    assert long - short == full
    assert short > full


def test_answers_of_batches_are_in_the_order_of_the_prompts():
    made = load("inference_one_gpu/batches.py")
    for prompt, answer in zip(made.prompts[:4], made.answers[:4], strict=True):
        alone = made.model.generate(prompt[None], max_new_tokens=made.NEW, do_sample=False)
        assert torch.equal(alone[0, len(prompt) :], answer)


def test_no_batch_is_larger_than_the_budget_and_each_prompt_is_in_one():
    made = load("inference_one_gpu/batches.py")
    lengths = [len(prompt) for prompt in made.prompts]
    batches = list(made.batches(lengths))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) * (max(lengths[index] for index in batch) + made.NEW) <= made.BUDGET for batch in batches)
    assert len(batches) < len(lengths)


def test_continuous_batching_shares_pages_unless_told_otherwise():
    assert ContinuousBatchingConfig().allow_block_sharing
