"""Every row of the tables is complete and has a source, and the models are those that transformers builds."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config

from dryrun import hardware

DATE = r"\d{4}(-\d\d){0,2}"
UNITS = {"memory": "GB", "tflops": "TFLOP/s", "link": "name of a link"}
INTERMEDIATE = {"llama-1b": 8192, "llama-7b": 11008, "llama-8b": 14336, "llama-70b": 28672}


def problems(row, where):
    """What is missing or wrong in the origin of a value."""
    if not re.fullmatch(DATE, row.get("date", "")):
        yield f"{where}: date {row.get('date')!r}"
    if not row.get("source", "").startswith("https://"):
        yield f"{where}: source {row.get('source')!r}"


@pytest.mark.parametrize("name", hardware.GPUS)
def test_a_gpu_has_every_value_with_its_unit_and_source(name):
    row = hardware.table("gpus")[name]
    assert set(row) == set(UNITS)
    for key, unit in UNITS.items():
        assert not list(problems(row[key], f"{name}, {key}"))
        assert row[key]["unit"] == unit
    gpu = hardware.GPUS[name]
    assert name.endswith(f" {gpu.memory_gb}GB")
    assert gpu.tflops > 50
    assert gpu.link in hardware.LINKS


@pytest.mark.parametrize("name", hardware.LINKS)
def test_a_link_has_a_bandwidth_with_its_unit_and_source(name):
    row = hardware.table("links")[name]
    assert not list(problems(row, name))
    assert row["unit"] == "GB/s"
    assert row["value"] > 1
    if name.endswith("GbE"):
        assert row["value"] == int(name.split()[0]) / 8


def config_of(name):
    model = hardware.MODELS[name]
    if name == "gpt2":
        return GPT2Config()
    shape = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": model.tied,
    }
    if name == "qwen-72b":
        return Qwen2Config(**shape, intermediate_size=29568)
    return LlamaConfig(**shape, intermediate_size=INTERMEDIATE[name])


@pytest.mark.parametrize("name", hardware.MODELS)
def test_a_model_has_the_parameters_that_transformers_counts(name):
    assert not list(problems(hardware.table("models")[name], name))
    with torch.device("meta"):
        assert AutoModelForCausalLM.from_config(config_of(name)).num_parameters() == hardware.MODELS[name].parameters
