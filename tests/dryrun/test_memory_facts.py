"""Names of models without a profile: whether text fits is answered without torch, by what the models' own code says."""

import subprocess
import sys
from dataclasses import replace

import pytest
from same_trace import ROOT

from dryrun import Cluster, Generation
from dryrun.answer import inference
from dryrun.cost import decoding
from dryrun.cost.traces import traced
from dryrun.models import models
from dryrun.step import memory_facts, profiles
from dryrun.step.workload import Workload
from dryrun.tracing import profile_trace

TODAY = ("gpt-oss-20b", "gpt-oss-120b", "gemma-3-27b", "gemma-4-31b", "gemma-4-26b-a4b", "qwen3.5-27b", "qwen3.6-35b-a3b", "glm-4.5", "glm-5",
         "minimax-m2.5", "kimi-k2", "nemotron-3-nano-30b", "deepseek-v4-flash", "llama-4-scout")  # fmt: skip


def test_every_name_that_writes_text_has_a_profile_or_its_memory():
    assert not [name for name in memory_facts.wanted() if name not in memory_facts.table()], "python -m dryrun.tracing.profile_trace --facts"
    assert not [name for name in memory_facts.table() if name not in models.configurations()]


@pytest.mark.parametrize("name", ["gpt-oss-120b", "minimax-m3", "deepseek-v4-flash", "nemotron-3-nano-30b", "mpt-125m"])
def test_the_table_says_what_the_models_own_code_says(name):
    assert memory_facts.table()[name] == profile_trace.memory_facts_of(name)


# Their embeddings are of another width than the model, and of each layer.
OTHER_EMBEDDINGS = {"opt-350m", "gemma-4-e2b"}


def test_a_token_reads_all_weights_but_those_of_experts_and_embeddings():
    shares = {}
    for name, model in memory_facts.table().items():
        of = model["traced"]
        apart = of.get("experts", [0])[0] + of["vocabulary"] * of["width"] * (1 if of.get("tied") else 2)
        shares[name] = of["dense_weights"] / (model["parameters"] - apart)
    assert {name for name, share in shares.items() if not 0.97 < share <= 1} == OTHER_EMBEDDINGS


@pytest.mark.parametrize("name, spelled", [("gpt-oss-120b", "openai/gpt-oss-120b"), ("deepseek-v3", "DeepSeek-R1"), ("kimi-k2", "Kimi K2"),
                                           ("meta-llama-3-8b", "meta-llama/Meta-Llama-3-8B"), ("llama3-8b", "meta-llama/Llama-3.1-8B"),
                                           ("qwen3.6-35b-a3b", "Qwen/Qwen3.6-35B-A3B")])  # fmt: skip
def test_a_model_of_today_is_known_however_it_is_spelled(name, spelled):
    assert models.known(spelled) == name


def test_the_first_llama_3_has_the_positions_that_it_had():
    assert models.class_and_fields("meta-llama-3-8b")[1]["max_position_embeddings"] == 8192


def test_memory_is_answered_without_torch_and_the_speed_is_said_to_need_it():
    program = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = None  # as if they were not installed
import importlib.util
importlib.util.find_spec = lambda name, found=importlib.util.find_spec: None if name == "torch" else found(name)
import dryrun
from dryrun import Cluster, Generation
for name in {TODAY}:
    found = dryrun.predict(Generation(name, prompt=2048, new=256), Cluster("h200-sxm", gpus=2))
    print(name, round(found.weights), found.users is None or found.users >= 0, found.predicted or "pip install" in found.unpredicted or "published run" in found.unpredicted)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(TODAY)
    assert all(int(line[1]) > 1e9 and line[2:] == ["True", "True"] for line in lines)


def test_a_name_with_a_profile_is_answered_from_it():
    assert not [name for name in memory_facts.table() if profiles.has(name)]


@pytest.mark.parametrize("name", ["gemma-3-1b", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("gpt-oss-20b", "qwen3.5-4b", "gemma-4-e2b", "nemotron-3-nano-30b"))])
def test_a_token_reads_the_weights_that_a_trace_reads(name):
    """So a Mac's speed without torch is that with it: gemma-3-27b in bf16 was 64 tokens/s there, and is 8."""
    workload = Workload(name, 1, 1, kind="decode", compiled=True)
    by_table, by_trace = (decoding.weights_read(of, workload) for of in (memory_facts.of(workload), traced(workload)))
    assert by_table == pytest.approx(by_trace, rel=0.001)


def test_without_its_reads_a_model_gets_no_speed_on_a_mac():
    found = memory_facts.of(Workload("gemma-3-1b", 1, 1, kind="decode"))
    served = inference.Served(Generation("gemma-3-1b"), Cluster("m4-max"), found)
    assert served.predicted
    assert "no profile here" in replace(served, traced=replace(found, dense_weights=0)).unpredicted
