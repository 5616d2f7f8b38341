"""The format of a checkpoint is read off its configuration: per part where the experts have their own, and named where it is not known."""

import json

import pytest

from dryrun import Cluster, Generation
from dryrun.answer import inference
from dryrun.models import models
from dryrun.models.stored import Stored, stored
from dryrun.step import memory_facts
from dryrun.step.workload import Experts, Traced
from dryrun.tables.hardware import GiB

ATTENTION_LEFT = {"ignore": ["lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn*"]}
LAYERS = {"model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"}, "model.layers.0.linear_attn.out_proj": {"quant_algo": "FP8"}}


@pytest.mark.parametrize(
    ("said", "mixture", "expected"),
    [
        ({"quant_method": "mxfp4"}, True, Stored("mxfp4", "mxfp4", "bf16")),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, True, Stored("fp8", "fp8", "fp8")),
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.indexer.k_norm"]}, True, Stored("fp8", "fp8", "fp8")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, False, Stored("awq", "int4-128", "int4-128")),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, False, Stored("gptq", "", "")),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, False, Stored("bitsandbytes", "nf4", "nf4")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, False, Stored("nvfp4", "nvfp4", "nvfp4")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", **ATTENTION_LEFT}, True, Stored("nvfp4", "nvfp4", "bf16")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", **ATTENTION_LEFT}, False, Stored("nvfp4", "", "")),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": LAYERS}, True, Stored("mixed_precision", "nvfp4", "fp8")),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
          "ignore": ["re:.*self_attn.*"]}, True, Stored("compressed-tensors", "int4-32", "bf16")),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, False,
         Stored("compressed-tensors", "fp8", "fp8")),
        ({"quant_method": "of_next_year"}, False, Stored("of_next_year", "", "")),
    ],
)  # fmt: skip
def test_a_format_is_that_of_each_part(said, mixture, expected):
    assert stored({"quantization_config": said}, mixture) == expected


def test_fp4_experts_beside_fp8_layers_are_two_formats():
    assert stored({"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}}, True) == Stored("fp8", "mxfp4", "fp8")


def test_a_list_of_every_layer_becomes_what_it_comes_to():
    values = {"model_type": "llama", "num_experts": 8, "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": LAYERS}}
    text = models.without_layers(values)
    assert "out_proj" not in text and models.stored(text) == stored(values, True)
    assert json.loads(text)["num_experts"] == 8


@pytest.mark.parametrize(("name", "weights", "rest"), [("gpt-oss-120b", "mxfp4", "bf16"), ("deepseek-v3", "fp8", "fp8"), ("deepseek-v4-flash", "mxfp4", "fp8"),
                                                     ("kimi-k2.5", "int4-32", "bf16"), ("qwen3-8b", "bf16", "bf16")])  # fmt: skip
def test_a_generation_takes_the_checkpoint_as_it_is_published(name, weights, rest):
    asked = Generation(name)
    assert (asked.weights, asked.rest, asked.as_published) == (weights, rest, weights != "bf16")
    other = Generation(name, weights="int8")
    assert (other.weights, other.rest, other.as_published) == ("int8", "int8", False)


def test_experts_alone_are_counted_in_their_format():
    """gpt-oss-20b: its three files are 13.76e9 bytes together (https://huggingface.co/openai/gpt-oss-20b/tree/main)."""
    facts = memory_facts.table()["gpt-oss-20b"]
    experts = Experts(*facts["traced"]["experts"])
    traced = Traced(parameters=facts["parameters"], **(facts["traced"] | {"experts": experts}))
    served = inference.Served(Generation("gpt-oss-20b"), Cluster("rtx-4090"), traced)
    assert served.weights == pytest.approx(13.76e9, rel=0.01)
    assert served.weights / GiB < 13 and served.fits


def test_what_is_not_known_of_a_format_is_said_and_not_counted():
    assert stored({"quantization_config": {"quant_method": "of_next_year"}}, False).weights == "bf16"


def test_the_format_beside_a_config_is_read_and_one_in_it_goes_first(tmp_path):
    """NVIDIA's checkpoints of ModelOpt have it in hf_quant_config.json, where vLLM reads it too."""
    sizes = {"vocab_size": 32000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    config, beside = tmp_path / "config.json", tmp_path / "hf_quant_config.json"
    config.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes}))
    assert Generation(str(tmp_path)).weights == "bf16"
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}))
    asked = Generation(str(config))
    assert (asked.weights, asked.as_published, asked.model.stored_in) == ("fp8", True, "fp8")
    config.write_text(json.dumps({"model_type": "llama", **sizes, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}))
    assert Generation(str(config)).weights == "nvfp4"


def test_a_file_beside_a_config_that_says_no_quantization_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for text in ("", "[]", '{"quantization": 4}', '{"producer": {}}'):
        (tmp_path / "hf_quant_config.json").write_text(text)
        with pytest.raises(ValueError, match=r'hf_quant_config.json: there is no object "quantization" in it'):
            Generation(str(tmp_path))
