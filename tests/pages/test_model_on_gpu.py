"""The table of docs/index.md and the recipes: what notebooks/model_on_gpu.py says, and that it follows from `dryrun`."""

import contextlib
import json
import re
import runpy
from dataclasses import replace
from unittest import mock

import pytest
import torch
from programs import ROOT, SNIPPETS
from transformers import AutoModelForCausalLM, TrainingArguments

from dryrun import Cluster, Generation, Job
from dryrun.answer.answer import answer, of_job
from dryrun.answer.inference import serve
from dryrun.cost import device_memory, timing
from dryrun.cost.roofline import half_precision
from dryrun.cost.setting import FP32_ADAPTERS, Setting
from dryrun.cost.traces import traced
from dryrun.models import models
from dryrun.step import depth
from dryrun.step.memory_trace import Trace
from dryrun.step.workload import Workload
from dryrun.tables.hardware import accelerator
from dryrun.tracing import tracing
from dryrun.tracing.adapters import FourBitLinear
from dryrun.tracing.gpu_operators import GpuOperators
from dryrun.tracing.tracker import Tracker
from evidence import records

DATA = records.load(ROOT / "results" / "model_on_gpu" / "exact.json").data
CLAIMS = {name: claim["on"] for name, claim in DATA["claims"].items() if "on" in claim}
MODELS = {name.removeprefix("train-"): on for name, on in CLAIMS.items() if name.startswith("train-")}
METHODS = ("full", "LoRA", "QLoRA", "QLoRA, may fit", "does not fit")


def method(said):
    return said["words"].split(":")[0]


def test_a_larger_model_never_gets_a_wider_method():
    for gpu in next(iter(MODELS.values())):
        ranks = [METHODS.index(method(on[gpu])) for on in MODELS.values()]
        assert ranks == sorted(ranks), gpu


def test_more_memory_never_means_a_narrower_method():
    for model, on in MODELS.items():
        by_memory = sorted(on, key=lambda gpu: accelerator(gpu).usable)
        ranks = [METHODS.index(method(on[gpu])) for gpu in by_memory]
        assert ranks == sorted(ranks, reverse=True), model


def test_an_8b_model_is_fine_tuned_by_an_adapter_on_24_gb_and_70b_on_no_24_gb():
    assert method(MODELS["llama3-8b"]["rtx-4090"]) in ("LoRA", "QLoRA")
    assert method(MODELS["llama3-70b"]["rtx-4090"]) == "does not fit"


def test_what_one_user_gets_is_what_the_command_serves():
    """The verdict of `dryrun infer`, in fp16 where a GPU has no bf16."""
    shown = {gpu: said["words"] for gpu, said in CLAIMS["run-qwen2-5-14b"].items()}
    for gpu, words in shown.items():
        half, four = (serve(Generation("qwen2.5-14b", prompt=512, new=256, weights=weights), Cluster(gpu)) for weights in (half_precision(gpu), "int4-128"))
        right = half_precision(gpu) if half.fits else "4 bits" if four.fits else "4 bits, may fit" if four.predicted else "does not fit"
        assert words == right, gpu
    assert {"fp16", "bf16", "4 bits"} <= set(shown.values())


def test_between_two_gpus_that_run_the_same_weights_the_one_with_more_bandwidth_answers_sooner():
    on = CLAIMS["run-llama3-8b"]
    card = {gpu: accelerator(gpu).get("bandwidth") for gpu in on}
    same = [gpu for gpu, said in on.items() if said["words"] == "bf16"]
    pairs = [(slow, fast) for slow in same for fast in same if card[fast] > 1.2 * card[slow]]
    assert len(pairs) >= 10
    for slow, fast in pairs:
        assert on[slow]["value"] < on[fast]["value"], (slow, fast)


class Stop(Exception):
    """Ends the recipe's program where it would train."""


def made_by_the_recipe(layers, length, bits, folder):
    """What finetune_8b.py makes before it trains, of a Qwen3-8B with fewer layers and no data: model, arguments, rows."""
    _, config = models.configuration("qwen3-8b", length)
    config = depth.with_layers(config, layers)
    config.layer_types = config.layer_types[:layers]
    made = {}

    class Words:
        """A conversation of `length` tokens, half of them the question."""

        pad_token = "<pad>"

        def apply_chat_template(self, messages, **more):
            return {"input_ids": [5] * (length if len(messages) > 1 else length // 2)}

    def loaded(name, dtype, quantization_config, device_map):
        made["in_4_bits"] = quantization_config is not None
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=tracing.implementation("auto"))

    class Caught:
        def __init__(self, model, args, train_dataset, **more):
            made.update(model=model, arguments=args, rows=train_dataset)

        def train(self, **more):
            raise Stop

    arguments = TrainingArguments
    said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    (folder / "conversations.jsonl").write_text(json.dumps({"messages": said}))
    with (
        contextlib.chdir(folder),
        mock.patch.object(AutoModelForCausalLM, "from_pretrained", loaded),
        mock.patch("transformers.AutoTokenizer.from_pretrained", lambda name: Words()),
        mock.patch("transformers.DataCollatorForSeq2Seq", lambda *more, **named: None),
        mock.patch("transformers.Trainer", Caught),
        mock.patch("torch.cuda.is_available", lambda: True),  # else it computes in fp32
        mock.patch("transformers.TrainingArguments", lambda folder, **given: arguments(folder, **given | {"use_cpu": True})),
        mock.patch("sys.argv", ["finetune_8b.py", "--length", str(length), "--bits", str(bits)]),
        pytest.raises(Stop),
    ):
        runpy.run_path(SNIPPETS / "recipes/finetune_8b.py")
    return made


def step_of_the_recipe(layers, length, bits, folder, checkpointing=True):
    """Two of its micro-batches and an update, as Trainer runs them, on fake tensors; if told so, without its checkpointing."""
    made = made_by_the_recipe(layers, length, bits, folder)
    model, arguments = made["model"], made["arguments"]
    with tracing.fake(), GpuOperators("auto"):
        model = model.to_empty(device="cpu")
        for name, module in list(model.named_modules()):
            if made["in_4_bits"] and isinstance(module, torch.nn.Linear) and not re.search("lora_|lm_head", name):
                model.set_submodule(name, FourBitLinear(module))
        base = model.base_model.model.train()
        base.config.use_cache = arguments.use_cache
        assert arguments.activation_checkpointing
        if checkpointing:
            base.activation_checkpointing_enable()
            base.enable_input_require_grads()
        optimizer = tracing.OPTIMIZERS["adamw"]([weight for weight in model.parameters() if weight.requires_grad])
        tracing.create_state(model, optimizer)
        ids = torch.zeros(arguments.per_device_train_batch_size, len(made["rows"][0]["input_ids"]), dtype=torch.long)
        batch = {"input_ids": ids, "labels": ids}
        with Tracker(model, optimizer, batch) as tracker:
            tracing.end_part_in_mid_backward(model, tracker)
            for _ in range(min(2, arguments.gradient_accumulation_steps)):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.bf16):
                    loss = model(**batch).loss
                tracker.part()
                loss.backward()
                del loss
                tracker.part()
            optimizer.step()
            tracker.part()
    found = Trace()
    found.take(tracker)
    return found


@pytest.mark.parametrize("bits, method, loss", [(4, "QLoRA", "whole"), (16, "LoRA, bf16", "whole")])
def test_the_memory_beside_the_recipe_is_that_of_its_own_program(bits, method, loss, tmp_path):
    few, all_layers = (2, 4), models.configuration("qwen3-8b", 2048)[1].num_hidden_layers
    program = depth.line_of([step_of_the_recipe(n, 2048, bits, tmp_path) for n in few], few, all_layers, Trace())
    workload = Workload("qwen3-8b", 1, 2048, checkpointing=1, autocast="bfloat16" if bits == 16 else "", rank=16, targets="all linear", four_bit=bits == 4)
    setting = Setting(gpu="rtx-4090", accumulation=16, state=FP32_ADAPTERS)
    said = device_memory.needed(traced(workload), workload, setting, timing.fitted()["memory"])
    assert sum(said.categories.values()) == pytest.approx(program.peak, rel=0.01)
    assert needed(method, loss)["2,048"]["needed"] == pytest.approx(said.expected / 2**30)
    if bits == 4:
        assert CLAIMS["recipe-memory"]["rtx-4090"]["value"] == pytest.approx(said.expected / 2**30)


def test_without_checkpointing_lora_keeps_a_copy_of_the_input_of_each_adapter_and_a_job_counts_them(tmp_path):
    few, all_layers = (2, 4), models.configuration("qwen3-8b", 2048)[1].num_hidden_layers
    program = depth.line_of([step_of_the_recipe(n, 2048, 16, tmp_path, checkpointing=False) for n in few], few, all_layers, Trace())
    said = of_job(Job("qwen3-8b", length=2048, method="lora", accumulation=16), Cluster("h100-sxm5"))
    assert sum(said.needed.categories.values()) == pytest.approx(program.peak, rel=0.01)
    without = traced(replace(said.workload, autocast=""))
    assert without.kernels == said.traced.kernels and without.memory.flops == said.traced.memory.flops
    assert said.traced.memory.peak > 1.05 * without.memory.peak


@pytest.mark.parametrize("gpu", ["rtx-4090", "a100-sxm4-80"])
def test_the_command_gives_the_speed_that_the_recipe_shows(gpu):
    workload = Workload("qwen3-8b", 1, 2048, checkpointing=1, rank=16, targets="all linear", four_bit=True)
    found = answer(workload, Setting(gpu=gpu, precision="bf16", accumulation=16, state=FP32_ADAPTERS))
    assert found.prediction.tokens_per_second == pytest.approx(CLAIMS["recipe-tokens"][gpu]["value"])


def rows(name):
    table = DATA["tables"][name]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def needed(method, loss):
    return {row["tokens"]: row for row in rows("recipe-lengths") if (row["method"], row["loss"]) == (method, loss)}


def test_a_loss_in_chunks_makes_room_for_twice_the_length_on_24_gb():
    whole, chunks = needed("QLoRA", "whole"), needed("QLoRA", "in chunks")
    assert all(chunks[tokens]["needed"] < whole[tokens]["needed"] for tokens in chunks)
    assert whole["4,096"]["on24"] == "yes" and whole["8,192"]["on24"] == "maybe"
    assert chunks["8,192"]["on24"] == chunks["16,384"]["on24"] == "yes"


def test_lora_in_bf16_fits_24_gb_with_short_conversations():
    assert needed("LoRA, bf16", "in chunks")["2,048"]["on24"] == needed("LoRA, bf16", "whole")["2,048"]["on24"] == "yes"


def test_short_micro_batches_make_the_gpus_wait_and_from_4096_tokens_on_more_bring_nothing():
    micro = {row["tokens"]: row for row in rows("recipe-14b-micro")}
    for gpu in ("a100-rate", "h100-rate"):
        assert micro["1 x 512"][gpu] < 0.85 * micro["1 x 1,024"][gpu]
        assert micro["4 x 1,024"][gpu] > micro["1 x 1,024"][gpu]
        assert micro["1 x 8,192"][gpu] < micro["1 x 4,096"][gpu]
