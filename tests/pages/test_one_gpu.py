"""docs/training/one-gpu.md, docs/training/batch-size.md, docs/training/checkpointing.md and docs/training/precision.md, sentence by sentence.

Their figures are tested where they are made, in the notebooks.
"""

import inspect
import logging
import re
import runpy
import subprocess
import sys
import types
import warnings

import pytest
import torch
from accelerate.utils import find_executable_batch_size
from programs import ROOT, SNIPPETS, run, shown_message
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    LlamaConfig,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging as transformers_logging

from dryrun.tracing.tracing import training_step
from evidence import records

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)


def error(name):
    kind, _, message = shown_message("one_gpu", name).partition(": ")
    return kind, message


def losses(model, data, **arguments):
    """The logged losses of two optimizer steps over eight rows each."""
    set_seed(0)
    arguments = TrainingArguments(
        "out", max_steps=2, logging_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True, **arguments
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def classifier():
    set_seed(0)
    config = BertConfig(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return AutoModelForSequenceClassification.from_config(config)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 500, (16, 32), generator=generator)
    return [{"input_ids": row, "labels": int(row[0] % 2)} for row in ids]


class OnAGpu(Exception):
    """What a program made before it would have trained on a GPU."""


def test_the_peak_beside_the_program_with_all_methods_is_that_of_its_own_step(monkeypatch):
    def caught(model, args, train_dataset):
        raise OnAGpu(model, args, train_dataset)

    with monkeypatch.context() as as_if, torch.device("meta"):
        as_if.setattr(torch.cuda, "is_available", lambda: True)
        as_if.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
        as_if.setattr("transformers.TrainingArguments", lambda folder, **given: types.SimpleNamespace(**given))
        as_if.setattr("transformers.Trainer", caught)
        with pytest.raises(OnAGpu) as made:
            runpy.run_path(SNIPPETS / "one_gpu/all_together.py")
    model, arguments, rows = made.value.args
    step = training_step(
        AutoModelForSequenceClassification,
        model.config,
        arguments.per_device_train_batch_size,
        len(rows[0]["input_ids"]),
        autocast=torch.bfloat16 if arguments.bf16 else torch.float16,
        activation_checkpointing=arguments.activation_checkpointing,
        accumulation=arguments.gradient_accumulation_steps,
    )
    shown = records.load(ROOT / "results" / "memory_anatomy" / "exact.json").data["claims"]["together-peak"]["value"]
    assert step.peak_gib == pytest.approx(shown, rel=0.01)


# Where the memory goes


def test_the_peak_at_batch_1_comes_when_every_gradient_exists_and_no_activation_is_left():
    step = training_step(AutoModelForCausalLM, LlamaConfig(**SMALL | {"num_hidden_layers": 8}), 1, 8)
    assert step.peak_by_category["gradients"] == 4 * step.parameters
    assert step.peak_by_category["activations"] < 0.01 * step.after_forward["activations"]


def test_trace_your_own_model_prints_its_parameters_and_its_peak():
    assert "8.03 billion parameters, peak 59.9 GiB\n" in run("one_gpu/trace_your_model.py").stdout


def test_the_two_counters_of_the_allocator():
    printed = run("one_gpu/measure_peak.py").stdout
    assert "GiB" in printed if torch.cuda.is_available() else "no GPU here" in printed


# Batch size


def test_auto_find_batch_size_tries_again_with_a_batch_a_tenth_smaller():
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def train(batch_size):
        tried.append(batch_size)
        if len(tried) < 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")

    train()
    assert tried == [64, 57, 51]


def test_auto_find_batch_size_leaves_gradient_accumulation_as_it_is(rows):
    class Full(Trainer):
        def training_step(self, model, inputs, *more):
            if len(inputs["labels"]) > 7:
                raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
            return super().training_step(model, inputs, *more)

    arguments = TrainingArguments(
        "out", max_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True, auto_find_batch_size=True,
        per_device_train_batch_size=8, gradient_accumulation_steps=2,
    )  # fmt: skip
    trainer = Full(model=classifier(), args=arguments, train_dataset=rows)
    trainer.train()
    assert (trainer.state.train_batch_size, trainer.args.gradient_accumulation_steps) == (7, 2)


# Gradient accumulation


def test_accumulation_with_accelerate_and_in_plain_pytorch_is_the_same_training():
    losses_of_a_loop = [float(loss) for loss in run("one_gpu/accumulation_pytorch.py").stdout.split()]
    assert len(losses_of_a_loop) == 4
    with_accelerate = [float(loss) for loss in run("one_gpu/accumulation_accelerate.py").stdout.split()]
    assert with_accelerate == pytest.approx(losses_of_a_loop, abs=2e-4)  # the last digit may round otherwise


def test_mixed_precision_and_checkpointing_with_accelerate_and_in_plain_pytorch_are_the_same_training():
    losses_of_a_loop = [float(loss) for loss in run("one_gpu/loop_pytorch.py").stdout.split()]
    assert len(losses_of_a_loop) == 4
    with_accelerate = [float(loss) for loss in run("one_gpu/loop_accelerate.py").stdout.split()]
    assert with_accelerate == pytest.approx(losses_of_a_loop, abs=2e-4)  # the last digit may round otherwise


def test_accumulation_gives_the_loss_of_one_large_batch(rows):
    model = classifier()
    model.accepts_loss_kwargs = False
    accumulated = losses(model, rows, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert accumulated == pytest.approx(losses(classifier(), rows, per_device_train_batch_size=8), rel=1e-4)


def test_without_accepts_loss_kwargs_the_loss_of_a_bert_classifier_comes_out_too_large_by_the_micro_batches(rows):
    accumulated = losses(classifier(), rows, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    whole = losses(classifier(), rows, per_device_train_batch_size=8)
    assert accumulated[0] == pytest.approx(4 * whole[0], rel=1e-3)


def test_causal_language_models_divide_correctly(rows):
    def llama():
        set_seed(0)
        return AutoModelForCausalLM.from_config(LlamaConfig(**SMALL))

    rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows]
    accumulated = losses(llama(), rows, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert accumulated == pytest.approx(losses(llama(), rows, per_device_train_batch_size=8), rel=1e-4)


def test_accumulated_gradients_lie_under_the_activations_of_the_next_micro_batch():
    config = LlamaConfig(**SMALL | {"num_hidden_layers": 8, "hidden_size": 256, "intermediate_size": 512})
    one = training_step(AutoModelForCausalLM, config, 1, 64)
    four = training_step(AutoModelForCausalLM, config, 1, 64, accumulation=4)
    assert four.peak > one.peak


# Activation checkpointing


def test_checkpointing_changes_neither_loss_nor_gradients():
    ids = torch.arange(64).view(2, 32)

    def gradients(checkpointing):
        model = classifier()
        if checkpointing:
            model.activation_checkpointing_enable()
        loss = model.train()(input_ids=ids, labels=torch.tensor([0, 1])).loss
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    plain, checkpointed = gradients(False), gradients(True)
    assert len(plain) > 10
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain, checkpointed))


def test_in_evaluation_mode_which_from_pretrained_leaves_nothing_is_checkpointed(tmp_path):
    AutoModelForCausalLM.from_config(LlamaConfig(**SMALL)).save_pretrained(tmp_path)
    model, calls = AutoModelForCausalLM.from_pretrained(tmp_path), []
    model.activation_checkpointing_enable()
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *given: calls.append(1))
    for training in (None, True):
        assert model.training is bool(training)
        ids = torch.ones(1, 8, dtype=torch.long)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        assert len(calls) == (2 if training else 1)  # the backward pass computes it again
        calls.clear()
        model.train()


def test_use_reentrant_false_is_the_default():
    model = classifier()
    model.activation_checkpointing_enable()
    layer = model.bert.encoder.layer[0]
    assert layer._gradient_checkpointing_func.keywords == {"use_reentrant": False}


def test_the_old_name_of_the_argument_still_works_and_warns():
    kind, message = error("gradient_checkpointing")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arguments = TrainingArguments("out", gradient_checkpointing=True, use_cpu=True)
    assert arguments.activation_checkpointing
    assert (kind, message) in [(warning.category.__name__, str(warning.message)) for warning in caught]


def test_arguments_of_your_own_replace_the_default_and_pytorch_falls_back_to_the_reentrant_form():
    model = classifier()
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"preserve_rng_state": False})
    assert "use_reentrant" not in model.bert.encoder.layer[0]._gradient_checkpointing_func.keywords
    with pytest.warns(UserWarning, match="the use_reentrant parameter should be passed explicitly"):
        torch.utils.checkpoint.checkpoint(torch.sin, torch.ones(1, requires_grad=True))


def test_the_cache_is_dropped_with_the_warning_that_the_page_names(caplog):
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL)).train()
    model.activation_checkpointing_enable()
    ids = torch.ones(1, 8, dtype=torch.long)
    transformers_logging.warning_once.cache_clear()  # another test may have had it
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        model(input_ids=ids, labels=ids, use_cache=True).loss.backward()
    finally:
        logger.removeHandler(caplog.handler)
    assert "`use_cache=True` is incompatible with gradient checkpointing" in caplog.text
    assert TrainingArguments("out", use_cpu=True).use_cache is False


# Mixed precision


@without_gpu
@pytest.mark.parametrize(
    "name, arguments",
    [
        ("bf16_on_cpu", {"bf16": True}),
        ("both_halves", {"bf16": True, "fp16": True, "use_cpu": True}),
        ("tf32", {"tf32": True, "use_cpu": True}),
    ],
)
def test_error_messages_are_printed_verbatim(name, arguments):
    kind, message = error(name)
    with pytest.raises(Exception) as caught:
        TrainingArguments("out", **arguments)
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


def test_fp16_weights_cannot_be_unscaled():
    kind, message = error("fp16_weights")
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
    scaler.scale(weight.float().sum()).backward()
    with pytest.raises(Exception) as caught:
        scaler.unscale_(optimizer)
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


def test_is_bf16_supported_counts_emulation():
    assert inspect.signature(torch.cuda.is_bf16_supported).parameters["including_emulation"].default is True


def test_under_autocast_matrix_products_run_in_bf16_and_weights_stay_in_fp32():
    layer = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.ones(1, 4)).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32


def test_pytorch_leaves_tf32_off():
    assert torch.get_float32_matmul_precision() == "highest"


def test_fp8_swaps_the_linear_layers_and_leaves_the_logits_in_bf16():
    assert (
        "14 layers multiply in fp8" in run("one_gpu/fp8.py").stdout
    )  # seven in each of the two layers, and no output layer


def test_with_fp8_the_weights_stay_in_bf16():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16, dtype=torch.bfloat16))
    model = convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    assert type(model[0]) is not torch.nn.Linear
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_torchao_does_not_emulate_fp8_unless_asked():
    assert Float8LinearConfig().emulate is False


def test_from_pretrained_loads_a_checkpoint_in_the_dtype_it_was_saved_in():
    assert run("one_gpu/dtype_trap.py").stdout.split()[-2:] == ["torch.bfloat16", "torch.float32"]


def test_bf16_on_bf16_weights_leaves_no_fp32_weight_and_no_fp32_moment():
    model = classifier().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=torch.ones(1, 8, dtype=torch.long), labels=torch.zeros(1, dtype=torch.long)).loss
    loss.backward()
    optimizer.step()
    moments = {state["exp_avg"].dtype for state in optimizer.state.values()}
    assert {p.dtype for p in model.parameters()} == moments == {torch.bfloat16}


def test_bf16_has_8_significant_bits_and_rounds_a_small_update_away():
    assert torch.finfo(torch.bfloat16).eps == 2**-7
    weight = torch.tensor(1.0, dtype=torch.bfloat16)
    assert weight + torch.tensor(2**-9, dtype=torch.bfloat16) == weight


@pytest.mark.parametrize(("weight", "moves"), [(1.5 * 2**-7, False), (1.5 * 2**-8, True)])
def test_an_update_of_2e_5_moves_small_bf16_weights_and_not_large_ones(weight, moves):
    parameter = torch.nn.Parameter(torch.full((64, 64), weight, dtype=torch.bfloat16))
    parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW([parameter], lr=2e-5, weight_decay=0, fused=True).step()
    assert bool((parameter != weight).all()) == moves


@pytest.mark.parametrize(("beta", "shrinks"), [(0.999, False), (0.95, True)])
def test_the_second_moment_in_bf16_shrinks_only_with_a_smaller_beta(beta, shrinks):
    parameter = torch.nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([parameter], betas=(0.9, beta), fused=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    first = optimizer.state[parameter]["exp_avg_sq"].clone()
    parameter.grad.zero_()
    for _ in range(50):
        optimizer.step()
    assert bool((optimizer.state[parameter]["exp_avg_sq"] < first).all()) == shrinks


def test_stochastic_rounding_keeps_on_average_the_updates_that_bf16_rounds_away(rows):
    def moved(**optimizer):
        layer = torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
        arguments = TrainingArguments("out", use_cpu=True, learning_rate=1e-4, **optimizer)
        optimizer = Trainer(model=layer, args=arguments, train_dataset=rows).create_optimizer()
        torch.nn.init.ones_(layer.weight)
        with torch.compiler.set_stance("force_eager"):
            for _ in range(30):
                layer.weight.grad = torch.ones_like(layer.weight)
                optimizer.step()
        return layer.weight.float().mean().item()

    set_seed(0)
    assert moved(optim="adamw_torch_fused") == moved(optim="adamw_torch_8bit") == 1
    rounded = moved(optim="adamw_torch_8bit", optim_args="bf16_stochastic_round=True")
    assert rounded == pytest.approx(1 - 30 * 1e-4, abs=5e-4)


def test_selective_checkpointing_keeps_the_flops_of_a_plain_step_and_full_checkpointing_adds_a_quarter():
    printed = run("one_gpu/selective.py").stdout
    full, selective = map(float, re.search(r"full ([\d.]+), selective ([\d.]+)", printed).groups())
    assert 1.2 < full < 1.33
    assert selective == 1


def test_the_share_of_activations_that_the_compiler_keeps_is_all_by_default():
    from torch._functorch import config

    assert config.activation_memory_budget == 1.0


def test_the_recipes_of_fp8_are_those_of_the_page():
    from torchao.float8.config import Float8LinearRecipeName

    page = SNIPPETS.parent / "docs" / "training" / "precision.md"
    assert set(re.findall(r"^\| `\"(\w+)\"`", page.read_text(), re.M)) == {recipe.value for recipe in Float8LinearRecipeName}


def test_accelerate_leaves_the_first_and_last_linear_layer_out_of_fp8():
    from accelerate.utils import AORecipeKwargs, ao

    assert AORecipeKwargs().module_filter_func is None
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16, dtype=torch.bfloat16) for _ in range(4)))
    ao.convert_model_to_fp8_ao(model, config=Float8LinearConfig(emulate=True))
    assert [type(layer) is torch.nn.Linear for layer in model] == [True, False, False, True]


# A loss of your own


def test_the_own_loss_of_the_page_does_not_change_with_the_micro_batches():
    one, four = [line.split(" x ")[1].split() for line in run("one_gpu/own_loss.py").stdout.splitlines()[-2:]]
    assert (one[0], four[0]) == ("1", "4")
    assert [float(loss) for loss in four[1:]] == pytest.approx([float(loss) for loss in one[1:]], rel=1e-3)


def own_mean(scaled):
    class Own(Trainer):
        loss_is_scaled_for_ga = scaled

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs).loss  # a mean over this micro-batch

    return Own


@pytest.mark.parametrize("scaled, times", [(None, 4), (False, 1)])
def test_a_mean_of_your_own_is_too_large_by_the_micro_batches_unless_trainer_is_told(scaled, times, rows):
    data = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows]
    logged = []
    for cls in (Trainer, own_mean(scaled)):
        set_seed(0)
        model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL))
        arguments = TrainingArguments(
            "out", max_steps=1, logging_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True,
            per_device_train_batch_size=2, gradient_accumulation_steps=4,
        )  # fmt: skip
        trainer = cls(model=model, args=arguments, train_dataset=data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        logged.append(trainer.state.log_history[0]["loss"])
    assert logged[1] / logged[0] == pytest.approx(times, rel=1e-3)


def test_an_old_compute_loss_is_refused(rows):
    class Old(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False):
            return model(**inputs).loss

    arguments = TrainingArguments("out", max_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_items_in_batch'"):
        Old(model=classifier(), args=arguments, train_dataset=rows).train()


# tf32 has two switches


def test_the_old_switch_of_tf32_raises_after_the_new_one_until_both_are_set():
    program = (
        "import torch\n"
        "torch.backends.fp32_precision = 'tf32'\n"
        "try:\n    torch.get_float32_matmul_precision()\n"
        "except RuntimeError as error:\n    assert 'mix of the legacy and new APIs' in str(error)\n"
        "else:\n    raise SystemExit('no error')\n"
        "torch.set_float32_matmul_precision('high')\n"
        "assert torch.get_float32_matmul_precision() == 'high' and torch.backends.cuda.matmul.allow_tf32\n"
        "assert torch.backends.cuda.matmul.fp32_precision == 'tf32'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_max_autotune_reads_the_old_switch_of_tf32():
    from torch._inductor import select_algorithm

    keys = {}
    for precision in ("high", torch.get_float32_matmul_precision()):  # the second as it was
        torch.set_float32_matmul_precision(precision)
        keys[precision] = select_algorithm.create_precompile_key("mm", "", [])
    assert len(keys) == len(set(keys.values())) == 2


# Freezing


def activations(freeze):
    """The bytes that the forward pass of a Llama keeps for the backward pass, weights left out."""
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SMALL | {"num_hidden_layers": 8, "vocab_size": 100}))
    freeze(model)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes = {}

    def look(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(100, (2, 64))
    with torch.autograd.graph.saved_tensors_hooks(look, lambda tensor: tensor):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    size = sum(sizes.values())
    loss.backward()
    return size


def freeze_the_lower_half(model):
    for part in (model.get_input_embeddings(), *model.model.layers[:4]):
        part.requires_grad_(False)


def test_activations_go_only_below_the_first_weight_that_trains():
    everything = activations(lambda model: None)
    assert 0.4 < activations(freeze_the_lower_half) / everything < 0.6
    for freeze in (
        lambda model: model.model.layers[4:].requires_grad_(False),
        lambda model: model.model.layers[:4].requires_grad_(False),  # the embedding below them trains
    ):
        assert activations(freeze) / everything > 0.75


def test_the_command_for_a_small_gpu_prints_what_it_needs():
    command = re.search(r"`(train qwen3-4b [^`]+)`", (ROOT / "docs/training/one-gpu.md").read_text())
    printed = subprocess.run(
        [sys.executable, "-m", "dryrun", *command[1].split()], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    most = float(re.search(r"^total .*up to ([\d.]+)", printed, re.M)[1])
    assert most < 7.45  # GiB of a GPU with 8 GB
