"""docs/big-models.md, docs/saving.md and docs/slow-loading.md, sentence by sentence. Its figures are claims of its notebook."""

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from programs import SNIPPETS, load, run, shown_message
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    Qwen3MoeConfig,
    core_model_loading,
)
from transformers.utils import import_utils

FOLDER = SNIPPETS / "big_models"
SMALL = ["big_models/small.py"]
PROMPT = torch.arange(5, 13)[None]
LITTLE = {"device_map": "auto", "max_memory": {"cpu": "1400KB"}}  # less than the small model has


def error(name):
    kind, _, message = shown_message("big_models", name).partition(": ")
    return kind, message


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value).strip()


@functools.cache
def checkpoint():
    """The folder that small.py wrote: bf16, in several files."""
    return run("big_models/small.py").folder / "checkpoint"


def from_pretrained(folder=None, **options):
    return AutoModelForCausalLM.from_pretrained(folder or checkpoint(), **options)


def copied(tmp_path):
    """A copy of the checkpoint that a test may spoil."""
    return shutil.copytree(checkpoint(), tmp_path / "checkpoint")


def pickled(tmp_path):
    """The same model as version 4 could save it."""
    model = from_pretrained()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    return tmp_path


def is_mapped(tensor):
    """Whether a tensor lies in a file that this process has mapped. Linux tells."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
        if start <= tensor.data_ptr() < end:
            return bool(re.search(r"\.(safetensors|bin)$", line.strip()))
    return False


linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


# The programs


@pytest.mark.parametrize(
    "name, says",
    [
        ("big_models/empty.py", "70.6 billion parameters, 141 GB in torch.bfloat16"),
        ("big_models/dtype.py", "torch.bfloat16 torch.float32 2.0 times the memory"),
        ("big_models/peek.py", "model.layers.3.mlp.down_proj.weight BF16 [128, 352]"),
        ("big_models/device_map.py", "0: 11 layers, 19.5 GiB"),
        ("big_models/offload.py", "the same tokens: True"),
        ("big_models/seconds_per_token.py", "70B, 16 bits, 20 GB on the GPU, host: 3.8 s per token or more"),
        ("big_models/files.py", "went on to step 4"),
        ("big_models/estimate.py", "weights in 16 bits 15.0 GiB, cache 128 KiB per token and sequence"),
        ("big_models/convert_bin.py", "['config.json', 'generation_config.json', 'model.safetensors'] the same weights: True"),
    ],
)
def test_every_program_of_the_page_runs(name, says):
    assert says in run(name, beside=SMALL).stdout


@linux
def test_the_search_for_the_slow_part_measures_five_ways_and_says_when_a_model_is_too_small():
    said = run("big_models/why_slow.py", beside=SMALL).stdout
    assert re.findall(r"^(disk|cold|warm|no mmap|float32) +[\d.]+", said, re.M) == [
        "disk",
        "cold",
        "warm",
        "no mmap",
        "float32",
    ]
    assert "too small to judge by" in said


def test_the_command_that_traces_a_training_step_takes_a_config(tmp_path):
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500
    )
    config.save_pretrained(tmp_path)
    command = (FOLDER / "estimate.sh").read_text().splitlines()[-1].split()
    assert command[:3] == ["dryrun", "train", "path/to/config.json"]
    options = [word if word != "4096" else "64" for word in command[3:]]
    said = subprocess.run(
        [sys.executable, "-m", "dryrun", "train", tmp_path, *options], capture_output=True, text=True, check=True
    )
    assert "Memory at the peak" in said.stdout


# What happens when a model loads


@linux
def test_from_pretrained_maps_in_the_stored_dtype_and_copies_into_another():
    weight = "model.layers.0.mlp.down_proj.weight"
    assert is_mapped(from_pretrained().get_parameter(weight))
    assert not is_mapped(from_pretrained(dtype=torch.float32).get_parameter(weight))
    assert not is_mapped(from_pretrained(disable_mmap=True).get_parameter(weight))


@linux
def test_from_pretrained_maps_a_bin_file_too(tmp_path):
    assert is_mapped(from_pretrained(pickled(tmp_path)).get_parameter("model.layers.0.mlp.down_proj.weight"))


def test_the_default_dtype_is_the_one_of_the_checkpoint_and_the_old_name_still_works():
    assert from_pretrained().dtype == torch.bfloat16
    assert from_pretrained(torch_dtype=torch.float32).dtype == torch.float32


def test_arguments_that_do_nothing_are_dropped_without_a_word():
    model = from_pretrained(
        low_cpu_mem_usage=False, _fast_init=False, offload_state_dict=True, from_tf=False, from_flax=False
    )
    assert model.dtype == torch.bfloat16


def test_a_model_is_read_with_up_to_four_threads_unless_the_variable_says_one(monkeypatch):
    started, pool = [], core_model_loading.ThreadPoolExecutor

    def starts(max_workers):
        started.append(max_workers)
        return pool(max_workers)

    monkeypatch.setattr(core_model_loading, "ThreadPoolExecutor", starts)
    monkeypatch.delenv("HF_DEACTIVATE_ASYNC_LOAD", raising=False)
    monkeypatch.setenv("HF_ENABLE_PARALLEL_LOADING", "0")  # of earlier versions: nothing reads it
    from_pretrained()
    assert started == [core_model_loading.GLOBAL_WORKERS] and 1 <= started[0] <= 4
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")
    from_pretrained()
    assert len(started) == 1


# Empty models


def test_init_empty_weights_leaves_buffers_alone_and_the_meta_device_does_not():
    assert "init_empty_weights: cpu torch.device: meta" in run("big_models/empty.py").stdout


def empty():
    with init_empty_weights():
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint()))


def test_an_empty_model_runs_and_returns_nothing():
    assert empty()(PROMPT).logits.device.type == "meta"


def test_an_empty_model_takes_weights_by_assign():
    model, weights = empty(), from_pretrained().state_dict()
    model.load_state_dict(weights, assign=True)
    assert torch.equal(model(PROMPT).logits, from_pretrained()(PROMPT).logits)
    assert raised(empty().to, "cpu")[0] == "NotImplementedError"


def test_from_pretrained_refuses_a_meta_device():
    with torch.device("meta"):
        assert raised(from_pretrained) == error("meta_context")


# Files


def test_a_checkpoint_is_sharded_by_max_shard_size_and_only_safetensors_are_written(tmp_path):
    model = from_pretrained()
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "pickle", safe_serialization=False)
    assert (tmp_path / "one" / "model.safetensors").exists()
    assert {path.suffix for path in (tmp_path / "pickle").iterdir()} == {".json", ".safetensors"}
    assert len(list(checkpoint().glob("*.safetensors"))) > 1


def test_a_missing_file_a_missing_config_and_no_weights_are_named(tmp_path):
    folder = copied(tmp_path)
    second = sorted(folder.glob("*.safetensors"))[1]
    second.unlink()
    kind, message = raised(from_pretrained, folder)
    assert (kind, message.replace(str(folder), "checkpoint")) == error("missing_file")
    for path in [*folder.glob("*.safetensors"), *folder.glob("*.index.json")]:
        path.unlink()
    kind, message = raised(from_pretrained, folder)
    assert (kind, message.replace(str(folder), "checkpoint")) == error("no_weights")
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    kind, message = raised(from_pretrained, weights)
    assert (kind, message.replace(str(weights), "weights")[: len(error("no_config")[1])]) == error("no_config")


@linux
@pytest.mark.parametrize("apart", [True, False])
def test_experts_are_copied_from_their_original_format_and_mapped_once_saved_fused(tmp_path, apart):
    sizes = dict(hidden_size=64, intermediate_size=64, moe_intermediate_size=64, num_hidden_layers=1, vocab_size=64)
    heads = dict(num_attention_heads=2, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2)
    written = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**sizes, **heads), dtype=torch.bfloat16)
    written.save_pretrained(tmp_path, save_original_format=apart)
    model = from_pretrained(tmp_path)
    assert is_mapped(model.get_parameter("model.layers.0.mlp.experts.down_proj")) != apart
    assert is_mapped(model.get_parameter("model.layers.0.self_attn.q_proj.weight"))
    assert all(torch.equal(one, other) for one, other in zip(written.parameters(), model.parameters(), strict=True))


def test_an_optimizer_of_another_number_of_weights_is_refused():
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    saved = torch.optim.AdamW([first, second]).state_dict()
    assert "doesn't match the size of optimizer's group" in raised(torch.optim.AdamW([first]).load_state_dict, saved)[1]


# device_map and offload


def test_a_model_in_4_bits_is_refused_where_its_map_leaves_the_gpus():
    options = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True), "device_map": {"model": "cpu", "lm_head": "disk"}}
    assert raised(from_pretrained, **options) == error("quantized_dispatch")


def test_device_map_splits_between_host_and_disk_and_a_single_device_has_no_map():
    places = set(from_pretrained(**LITTLE).hf_device_map.values())
    assert places == {"cpu", "disk"}
    assert not hasattr(from_pretrained(device_map="cpu"), "hf_device_map")


def test_an_unknown_device_is_named():
    assert raised(from_pretrained, device_map="gpu") == error("device_name")


def test_safetensors_are_offloaded_where_they_lie_and_a_bin_needs_a_folder(tmp_path):
    from_pretrained(**LITTLE, offload_folder=tmp_path / "none")
    assert not list((tmp_path / "none").glob("*"))
    (tmp_path / "bin").mkdir()
    old = pickled(tmp_path / "bin")
    assert raised(from_pretrained, old, **LITTLE) == error("bin_disk")
    from_pretrained(old, **LITTLE, offload_folder=tmp_path / "written")
    assert list((tmp_path / "written").glob("*.safetensors"))


def test_offloading_is_announced():
    said = run("big_models/offload.py", beside=SMALL).stderr
    either_order = {error("offloaded")[0], error("offloaded")[0].replace("cpu and disk", "disk and cpu")}  # it joins a set
    assert any(text in said for text in either_order)


def test_an_offloaded_model_cannot_be_moved_and_can_be_saved(tmp_path):
    model = from_pretrained(**LITTLE)
    assert raised(model.to, "cpu") == error("moved")
    with pytest.warns(UserWarning, match=re.escape(error("save_offloaded")[1])):
        model.save_pretrained(tmp_path)
    same = zip(from_pretrained().parameters(), from_pretrained(tmp_path).parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in same)


@pytest.mark.parametrize(
    "gpu, host, expected", [(20, 160, (141.2 - 20) / 31.5), (20, 0, (141.2 - 20) / 7.9), (150, 0, 0)]
)
def test_seconds_per_token_are_the_bytes_that_are_fetched_over_the_bandwidth(gpu, host, expected):
    seconds = load("big_models/seconds_per_token.py").seconds_per_token
    assert seconds(70.6e9, 2, gpu_gb=gpu, host_gb=host, link="PCIe 4 x16") == pytest.approx(expected)


# Many ranks


@linux
def test_two_ranks_share_what_they_map_and_each_hold_what_they_convert():
    pattern = r"checkpoint (\d+) MB, 2 ranks: anonymous (\d+) MB, mapped (\d+) MB"
    mapped, converted = (
        [int(number) for number in re.search(pattern, run("big_models/ranks.py", *dtype, processes=2).stdout).groups()]
        for dtype in ([], ["float32"])
    )
    size, own, shared = mapped
    assert own < 0.5 * size and 0.7 * size < shared < 1.4 * size
    size, own, shared = converted
    assert own > 3.5 * size  # twice the bytes, on two ranks


@linux
def test_efficient_loading_of_fsdp_saves_no_memory_in_from_pretrained():
    """Where this fails, it works again: say so on the page."""
    switched_on = {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
    said = run("big_models/ranks.py", "float32", processes=2, environment=switched_on).stdout
    size, own = (
        int(number) for number in re.search(r"checkpoint (\d+) MB, 2 ranks: anonymous (\d+) MB", said).groups()
    )
    assert own > 3.5 * size


@functools.cache
def saved():
    return run("big_models/save_sharded.py", processes=2, beside=SMALL).folder


def test_each_rank_saves_a_file_that_from_pretrained_opens_as_it_is():
    names = sorted(path.name for path in (saved() / "shards").glob("*.safetensors"))
    assert [name[:11] for name in names] == ["shard-00001", "shard-00002"]
    whole = zip(
        from_pretrained(saved() / "checkpoint").parameters(),
        from_pretrained(saved() / "shards").parameters(),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in whole)


def test_shards_are_merged_into_the_model_that_was_gathered():
    merged = run("big_models/merge.py", start=saved()).folder
    one, other = (
        {name: weight for path in (merged / folder).glob("*.safetensors") for name, weight in load_file(path).items()}
        for folder in ("merged", "gathered")
    )
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_pickle_needs_torch_2_6(monkeypatch):
    monkeypatch.setattr(import_utils, "is_torch_greater_or_equal", lambda *_: False)
    kind, message = raised(import_utils.check_torch_load_is_safe)
    assert (kind, message.splitlines()[0]) == error("torch_old")


# Estimates


def test_the_formula_of_accelerate_prints_the_largest_of_four_parts():
    parts = estimate_training_usage(4 * 10**9, "float16")
    assert max(parts.values()) == parts["optimizer"] < parts["model"] + parts["gradients"] + parts["optimizer"]
