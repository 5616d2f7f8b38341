"""docs/training/optimizers.md and docs/training/optimizers-in-little-memory.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import copy
import functools
import inspect
import warnings
from pathlib import Path

import bitsandbytes
import pytest
import torch
from bitsandbytes.optim import GlobalOptimManager
from peft import LoraConfig, get_peft_model
from programs import load, run, shown_message
from schedulefree import AdamWScheduleFree
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    Adafactor,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Qwen3MoeConfig,
    Trainer,
    TrainerState,
    TrainingArguments,
    get_scheduler,
    set_seed,
)

from dryrun.tracing.tracing import training_step

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
LOW_RANK = {"optim_target_modules": "all-linear", "optim_args": "rank=16"}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """In an empty folder, with nothing that bitsandbytes remembers of other tests. The programs above compile; these do not."""
    monkeypatch.chdir(tmp_path)
    GlobalOptimManager.get_instance().initialize()
    with torch.compiler.set_stance("force_eager"):
        yield


def error(name):
    kind, _, message = shown_message("optimizers", name).partition(": ")
    return kind, message


def shown(caught):
    return type(caught.value).__name__, str(caught.value)


def llama(**changes):
    set_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**SMALL | changes), dtype=torch.float32)


def trainer(model=None, **arguments):
    arguments = {"max_steps": 3, "per_device_train_batch_size": 4, "learning_rate": 1e-2, **arguments}
    arguments = TrainingArguments(
        "out", logging_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True, **arguments
    )
    ids = torch.randint(0, 256, (32, 16), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    made = Trainer(model=model or llama(), args=arguments, train_dataset=rows, eval_dataset=rows)
    made.remove_callback(PrinterCallback)
    return made


def logged(made, key):
    return [entry[key] for entry in made.state.log_history if key in entry]


def optimizer_of(model, name, **arguments):
    """Trainer's optimizer after one step on random gradients."""
    optimizer = trainer(model, optim=name, **arguments).create_optimizer()
    step(model, optimizer)
    return optimizer


def step(model, optimizer):
    set_seed(1)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) if parameter.requires_grad else None
    optimizer.step()


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


# The programs


def test_the_program_with_lomo_trains_on_a_cpu():
    assert "train_loss" in run("optimizers/lomo.py").stdout


def test_the_program_that_counts_state_finds_eight_bytes_for_adamw_and_next_to_none_for_adafactor():
    printed = run("optimizers/state_bytes.py").stdout
    found = {line.split(":")[0]: float(line.split()[1]) for line in printed.splitlines() if "per parameter" in line}
    assert found["adamw_torch_fused"] == pytest.approx(8, abs=0.01)
    assert found["adafactor"] < 0.1
    assert 2 < found["adamw_bnb_8bit"] < 8  # its embedding stays in 32 bits


# AdamW and the names that are gone


@pytest.mark.parametrize("name", ["adamw_hf", "adamw_apex_fused", "muon"])
def test_names_that_are_gone_or_never_were_get_the_list_of_those_that_are(name):
    kind, message = error("adamw_hf")
    with pytest.raises(Exception) as caught:
        TrainingArguments("out", optim=name, use_cpu=True)
    assert shown(caught) == (kind, message.replace("adamw_hf", name))


def test_the_fused_form_is_trainers_default_and_adamw_torch_leaves_the_choice_to_pytorch():
    assert TrainingArguments("out", use_cpu=True).optim == "adamw_torch_fused"
    assert optimizer_of(llama(), "adamw_torch_fused").defaults["fused"] is True
    assert optimizer_of(llama(), "adamw_torch").defaults["fused"] is None


def test_the_three_forms_of_adamw_give_the_same_weights():
    forms = ({"fused": True}, {"foreach": True}, {"foreach": False})
    found = []
    for form in forms:
        model = llama()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **form)
        for _ in range(3):
            step(model, optimizer)
        found.append(weights(model))
    assert torch.allclose(found[0], found[1], atol=1e-6) and torch.allclose(found[0], found[2], atol=1e-6)


def test_max_grad_norm_takes_a_number_and_no_none():
    with pytest.raises(Exception) as caught:
        trainer(max_grad_norm=None).train()
    assert shown(caught) == error("max_grad_norm")


# Adafactor


def test_trainer_switches_off_adafactors_own_learning_rate():
    group = optimizer_of(llama(), "adafactor").param_groups[0]
    assert (group["scale_parameter"], group["relative_step"], group["beta1"]) == (False, False, None)
    assert group["lr"] == 1e-2


def test_adafactor_keeps_a_row_and_a_column_per_matrix_and_everything_of_a_vector():
    model = llama()
    state = optimizer_of(model, "adafactor").state
    matrix = model.model.layers[0].mlp.up_proj.weight
    assert state[matrix]["exp_avg_sq_row"].shape == (128,) and state[matrix]["exp_avg_sq_col"].shape == (64,)
    assert "exp_avg" not in state[matrix]
    assert state[model.model.norm.weight]["exp_avg_sq"].shape == (64,)


def test_with_a_first_moment_adafactor_needs_slightly_more_than_four_bytes():
    model = llama(vocab_size=4096)
    optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False, beta1=0.9)
    step(model, optimizer)
    tensors = [kept for state in optimizer.state.values() for kept in state.values() if isinstance(kept, torch.Tensor)]
    assert 4 < sum(kept.nbytes for kept in tensors) / model.num_parameters() < 4.5


# bitsandbytes


def test_trainer_keeps_embeddings_in_32_bits_and_the_head_in_8():
    model = llama()
    state = optimizer_of(model, "adamw_bnb_8bit").state
    assert state[model.model.embed_tokens.weight]["state1"].dtype == torch.float32
    assert state[model.lm_head.weight]["state1"].dtype == torch.uint8


def test_tensors_under_4096_elements_stay_in_32_bits_and_a_norm_of_4096_does_not():
    assert inspect.signature(bitsandbytes.optim.AdamW8bit).parameters["min_8bit_size"].default == 4096
    model = torch.nn.ModuleList([torch.nn.RMSNorm(4095), torch.nn.RMSNorm(4096)])
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
    step(model, optimizer)
    assert [state["state1"].dtype for state in optimizer.state.values()] == [torch.float32, torch.uint8]


def test_what_trainer_told_bitsandbytes_stays_for_the_next_model_of_the_process():
    optimizer_of(llama(), "adamw_bnb_8bit")  # its embedding is parameter 0 of group 0
    linear = torch.nn.Linear(128, 128, bias=False)
    optimizer = bitsandbytes.optim.AdamW8bit(linear.parameters())
    step(linear, optimizer)
    assert optimizer.state[linear.weight]["state1"].dtype == torch.float32
    GlobalOptimManager.get_instance().initialize()
    optimizer = bitsandbytes.optim.AdamW8bit(linear.parameters())
    step(linear, optimizer)
    assert optimizer.state[linear.weight]["state1"].dtype == torch.uint8


def test_an_optimizer_made_by_hand_puts_the_embedding_into_8_bits():
    model = llama()
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
    step(model, optimizer)
    assert optimizer.state[model.model.embed_tokens.weight]["state1"].dtype == torch.uint8


def test_paged_state_needs_a_gpu_and_says_so_on_a_cpu():
    kind, message = error("paged_on_cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer_of(llama(), "paged_adamw_8bit")
    assert (kind, message) in [(warning.category.__name__, str(warning.message)) for warning in caught]


# torchao


def test_torchao_quantizes_tensors_of_4096_elements_that_blocks_of_256_divide():
    model = torch.nn.ParameterList([torch.zeros(4096), torch.zeros(4096 + 128), torch.zeros(2048)])
    optimizer = torchao_8bit(model, block_size=256)
    step(model, optimizer)
    kinds = [type(state["exp_avg"]).__name__ for state in optimizer.state.values()]
    assert kinds == ["OptimState8bit", "Tensor", "Tensor"]


def torchao_8bit(model, **options):
    from torchao.optim import AdamW8bit

    return AdamW8bit(model.parameters(), **options)


def test_optim_args_hands_torchao_its_block_size_as_a_string_which_fails():
    with pytest.raises(Exception) as caught:
        optimizer_of(llama(), "adamw_torch_8bit", optim_args="block_size=128")
    assert shown(caught) == error("block_size")


def test_torchao_keeps_its_learning_rate_in_a_tensor():
    model = llama()
    optimizer = torchao_8bit(model)
    optimizer.param_groups[0]["lr"] = 1e-4
    with pytest.raises(Exception) as caught:
        step(model, optimizer)
    assert shown(caught) == error("torchao_lr")


# GaLore and APOLLO


@pytest.mark.parametrize("name", ["galore_adamw", "apollo_adamw"])
def test_galore_and_apollo_need_target_modules(name):
    kind, message = error("target_modules")
    with pytest.raises(Exception) as caught:
        optimizer_of(llama(), name)
    assert shown(caught) == (kind, message.replace("GALORE_ADAMW", name.upper()))


def test_target_modules_that_match_nothing_raise():
    with pytest.raises(Exception) as caught:
        optimizer_of(llama(), "galore_adamw", optim_target_modules=["nothing"])
    assert shown(caught) == error("no_target_found")


def test_the_layer_wise_form_takes_no_accumulation():
    with pytest.raises(Exception) as caught:
        optimizer_of(llama(), "galore_adamw_layerwise", gradient_accumulation_steps=4, **LOW_RANK)
    assert shown(caught) == error("layerwise_accumulation")


def test_trainer_drops_weight_decay_for_both_and_the_betas_for_galore():
    given = {"weight_decay": 0.1, "adam_beta1": 0.5, **LOW_RANK}
    galore = optimizer_of(llama(), "galore_adamw", **given).param_groups
    apollo = optimizer_of(llama(), "apollo_adamw", **given).param_groups
    assert [group["weight_decay"] for group in galore + apollo] == [0.0] * 4
    assert [group["betas"][0] for group in galore] == [0.9, 0.9]
    assert [group["betas"][0] for group in apollo] == [0.9, 0.5]  # the low-rank group alone gets it


def test_galores_projection_keeps_the_whole_factor_of_the_svd_alive_in_fp32_and_not_in_bf16():
    for dtype, keeps in ((torch.float32, True), (torch.bfloat16, False)):
        model = llama().to(dtype)
        state = optimizer_of(model, "galore_adamw", **LOW_RANK).state[model.model.layers[0].mlp.up_proj.weight]
        matrix = state["projector"].ortho_matrix
        assert (matrix.untyped_storage().nbytes() > matrix.numel() * matrix.element_size()) is keeps


def test_matched_modules_take_in_the_head_only_under_all_linear():
    for targets, in_low_rank in ((["attn", "mlp"], False), ("all-linear", True)):
        model = llama()
        groups = optimizer_of(model, "galore_adamw", optim_target_modules=targets, optim_args="rank=16").param_groups
        assert any(p is model.lm_head.weight for p in groups[1]["params"]) is in_low_rank


# Schedule-free


def test_without_train_mode_schedule_free_refuses_to_step():
    model = llama()
    with pytest.raises(Exception) as caught:
        step(model, AdamWScheduleFree(model.parameters()))
    assert shown(caught) == error("train_mode")


def test_the_loop_of_your_own_learns():
    losses = [float(line.split()[-1]) for line in run("optimizers/schedule_free_loop.py").stdout.splitlines()]
    assert losses[-1] < 0.5 * losses[0]


def test_trainers_default_schedule_lowers_the_learning_rate_of_schedule_free_too():
    made = trainer(optim="schedule_free_adamw")
    made.train()
    assert logged(made, "learning_rate")[-1] < 0.5 * logged(made, "learning_rate")[0]
    made = trainer(optim="schedule_free_adamw", lr_scheduler_type="constant")
    made.train()
    assert set(logged(made, "learning_rate")) == {1e-2}


def test_a_fraction_for_warmup_steps_multiplies_the_first_learning_rate():
    arguments = {"optim": "schedule_free_adamw", "lr_scheduler_type": "constant", "max_steps": 1}
    for warmup, factor in ((0.1, 10), (2, 0.5), (0, 1)):
        made = trainer(warmup_steps=warmup, **arguments)
        made.train()
        assert made.optimizer.param_groups[0]["scheduled_lr"] == pytest.approx(factor * 1e-2)


def test_after_training_the_model_holds_the_trained_weights_and_eval_turns_them_into_the_average():
    made = trainer(optim="schedule_free_adamw", lr_scheduler_type="constant")
    made.train()
    trained = weights(made.model)
    made.optimizer.eval()
    assert not torch.allclose(trained, weights(made.model))


def test_evaluation_by_trainer_switches_to_the_average():
    made = trainer(optim="schedule_free_adamw", lr_scheduler_type="constant")
    made.train()
    made.evaluate()
    averaged = weights(made.model)
    made.optimizer.eval()
    assert torch.equal(averaged, weights(made.model))


def test_a_checkpoint_holds_the_trained_weights_unless_an_evaluation_came_before_it():
    found = {}
    for evaluation in ("no", "steps"):
        made = trainer(
            optim="schedule_free_adamw", lr_scheduler_type="constant", eval_strategy=evaluation, eval_steps=3
        )
        made.args.save_strategy, made.args.save_steps = "steps", 3
        made.state.save_steps = 3
        made.train()
        found[evaluation] = weights(AutoModelForCausalLM.from_pretrained("out/checkpoint-3", dtype=torch.float32))
        made.optimizer.eval()
        assert torch.equal(found[evaluation], weights(made.model)) is (evaluation == "steps")
    assert not torch.equal(found["no"], found["steps"])


# LOMO


def test_lomo_is_plain_sgd():
    found = []
    for name in ("lomo", "sgd"):
        made = trainer(optim=name, max_grad_norm=0)
        made.train()
        found.append(weights(made.model))
    assert torch.allclose(*found, atol=1e-6)


def test_lomo_under_trainer_does_not_clip_and_logs_a_gradient_norm_of_zero():
    found = {}
    for name, norm in (("lomo", 1e-3), ("lomo", 0), ("sgd", 1e-3)):
        made = trainer(optim=name, max_grad_norm=norm)
        made.train()
        found[name, norm] = weights(made.model)
        if name == "lomo" and norm:
            assert set(logged(made, "grad_norm")) == {0.0}
    assert torch.equal(found["lomo", 1e-3], found["lomo", 0])
    assert not torch.allclose(found["lomo", 1e-3], found["sgd", 1e-3], atol=1e-6)


def test_lomo_steps_after_every_micro_batch():
    found = {}
    for name in ("lomo", "sgd"):
        made = trainer(
            optim=name, max_grad_norm=0, gradient_accumulation_steps=4, per_device_train_batch_size=1, learning_rate=1
        )
        made.train()
        found[name] = weights(made.model)
    assert not torch.allclose(found["lomo"], found["sgd"], atol=1e-4)


def test_weight_decay_does_not_reach_lomo():
    found = []
    for decay in (0.0, 0.5):
        made = trainer(optim="lomo", max_grad_norm=0, weight_decay=decay)
        made.train()
        found.append(weights(made.model))
    assert torch.equal(*found)


def test_lomo_does_not_train_behind_a_loss_scaler_and_does_in_bf16():
    made = trainer(optim="lomo", max_grad_norm=0)
    made.accelerator.scaler = torch.amp.GradScaler("cpu")  # as fp16=True makes it on a GPU
    with pytest.raises(TypeError) as caught:
        made.train()
    assert str(caught.value) == "Tensor.backward() got an unexpected keyword argument 'learning_rate'"
    trainer(optim="lomo", max_grad_norm=0, bf16=True).train()


def test_lomo_holds_no_state_and_no_gradient():
    made = trainer(optim="lomo", max_grad_norm=0)
    made.train()
    assert not made.optimizer.optimizer.state
    assert all(parameter.grad is None for parameter in made.model.parameters())


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build says it otherwise (2026-11-20)")
def test_adalomo_needs_a_gpu():
    with pytest.raises(Exception) as caught:
        optimizer_of(llama(), "adalomo")
    assert shown(caught) == error("adalomo")


# Muon


@functools.cache
def muon_and_adamw():
    return load("optimizers/muon.py").MuonAndAdamW


def test_muon_takes_matrices_only():
    with pytest.raises(Exception) as caught:
        torch.optim.Muon([torch.nn.Parameter(torch.zeros(64))])
    assert shown(caught) == error("muon_2d")


def test_muon_multiplies_30_times_the_width_cubed_whatever_the_gradient():
    width = 128
    weight = torch.nn.Parameter(torch.zeros(width, width))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Muon([weight])
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    assert counter.get_total_flops() == 30 * width**3


def test_the_pair_gives_muon_one_state_per_matrix_and_adamw_the_rest():
    model = llama()
    optimizer = muon_and_adamw()(model, lr=1e-3)
    step(model, optimizer)
    assert set(optimizer.state[model.model.layers[0].mlp.up_proj.weight]) == {"momentum_buffer"}
    assert "exp_avg_sq" in optimizer.state[model.model.embed_tokens.weight]
    assert "exp_avg_sq" in optimizer.state[model.lm_head.weight]
    assert "exp_avg_sq" in optimizer.state[model.model.norm.weight]


def test_the_pair_leaves_embeddings_and_heads_to_adamw_whatever_their_names():
    gpt2 = GPT2ForSequenceClassification(GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=256, n_positions=16))
    muon, adamw = ({id(p) for p in group["params"]} for group in muon_and_adamw()(gpt2, lr=1e-3).param_groups)
    assert {id(gpt2.transformer.wte.weight), id(gpt2.transformer.wpe.weight), id(gpt2.score.weight)} <= adamw
    assert muon == {id(p) for p in gpt2.transformer.h.parameters() if p.ndim == 2}


def test_optimizers_made_by_hand_have_a_weight_decay_of_their_own_and_trainers_has_none():
    weight = [torch.nn.Parameter(torch.zeros(4, 4))]
    made = torch.optim.Muon, torch.optim.AdamW, bitsandbytes.optim.AdamW8bit
    assert [optimizer(weight).param_groups[0]["weight_decay"] for optimizer in made] == [0.1, 0.01, 0.01]
    assert TrainingArguments("out", use_cpu=True).weight_decay == 0
    pair = muon_and_adamw()(llama(), lr=1e-3, weight_decay=0.3)
    assert [group["weight_decay"] for group in pair.param_groups] == [0.3, 0]


def test_plain_sgd_halves_the_peak_of_adamw_in_pure_bf16():
    config = LlamaConfig(**SMALL | {"num_hidden_layers": 8})
    peaks = {
        name: training_step(AutoModelForCausalLM, config, 1, 8, dtype=torch.bfloat16, optimizer=optimizer).peak
        for name, optimizer in (("adamw", "adamw"), ("sgd", lambda weights: torch.optim.SGD(weights, foreach=False)))
    }
    assert peaks["sgd"] == pytest.approx(peaks["adamw"] / 2, rel=0.01)


def test_the_pair_follows_the_schedule_and_resumes_from_a_checkpoint():
    def fresh():
        model = llama()
        optimizer = muon_and_adamw()(model, lr=1e-2)
        return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: 0.5**at)

    model, optimizer, schedule = fresh()
    for _ in range(2):
        step(model, optimizer)
        schedule.step()
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    assert [part.param_groups[0]["lr"] for part in optimizer.parts] == [1e-2 / 4] * 2
    resumed, second, _ = fresh()
    resumed.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    step(model, optimizer)
    step(resumed, second)
    assert torch.allclose(weights(model), weights(resumed), atol=1e-7)


# LoRA


def test_under_lora_only_the_adapters_have_state():
    model = get_peft_model(llama(), LoraConfig(r=4, target_modules="all-linear"))
    optimizer = optimizer_of(model, "adamw_torch_fused")
    assert {id(p) for p in optimizer.state} == {id(p) for p in model.parameters() if p.requires_grad}
    assert all("lora_" in name for name, p in model.named_parameters() if p.requires_grad)


def test_the_schedule_scales_each_group_by_its_own_rate():
    assert run("optimizers/groups.py").stdout.splitlines()[-1] == "the schedule scales: 0.001 0.001 0.0001"


def test_the_groups_of_the_page_decay_the_matrices_that_trainer_would_and_no_norm():
    program = load("optimizers/groups.py")
    trainer = Trainer(model=program.model, args=TrainingArguments("out", use_cpu=True))
    decayed = {id(p) for group in program.optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    ends = {id(program.model.lm_head.weight), id(program.model.model.embed_tokens.weight)}
    wanted = set(trainer.get_decay_parameter_names(program.model))
    assert decayed == {id(p) for name, p in program.model.named_parameters() if name in wanted} - ends


@pytest.mark.parametrize("argument", ["block_wise", "percentile_clipping"])
def test_bitsandbytes_refuses_what_version_0_50_removed(argument):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{argument}'"):
        bitsandbytes.optim.AdamW8bit([torch.nn.Parameter(torch.ones(8))], **{argument: 100})


def test_bitsandbytes_brings_libraries_for_cuda_12_8_13_rocm_and_xpu():
    names = {path.stem for path in Path(bitsandbytes.__file__).parent.glob("libbitsandbytes_*.so")}
    for accelerator in ("cuda128", "cuda13", "rocm", "xpu"):
        assert any(f"_{accelerator}" in name for name in names), names


# What the log says, schedules, averages, and steps in the backward pass


def test_an_optimizer_in_the_backward_pass_trains_as_the_ordinary_one_and_leaves_no_gradient():
    module = load("optimizers/in_backward.py")
    ids = torch.randint(500, (4, 32))
    losses = []
    for inside in (False, True):
        torch.manual_seed(0)
        model = LlamaForCausalLM(module.small)
        make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)  # noqa: E731
        optimizer = module.step_in_backward(model, make) if inside else make(model.parameters())
        losses.append([])
        for _ in range(3):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            if not inside:
                optimizer.step()
                optimizer.zero_grad()
            losses[-1].append(loss.item())
        assert all(parameter.grad is None for parameter in model.parameters())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_program_that_steps_in_the_backward_pass_learns():
    *losses, last = run("optimizers/in_backward.py").stdout.splitlines()
    assert last == "gradients left: 0"
    assert float(losses[-1]) < float(losses[0])


@pytest.mark.parametrize("dtype, follows", [(torch.float32, True), (torch.bfloat16, False)])
def test_the_average_of_pytorch_takes_the_dtype_of_the_model_and_never_moves_in_bf16(dtype, follows):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = torch.nn.Linear(4, 4).to(dtype)
    torch.nn.init.ones_(model.weight)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    average.update_parameters(model)
    torch.nn.init.constant_(model.weight, 1.5)
    for _ in range(500):
        average.update_parameters(model)
    assert (average.module.weight[0, 0].item() > 1) is follows


def test_the_callback_of_the_page_keeps_its_average_in_fp32():
    module = load("optimizers/ema.py")
    model = torch.nn.Linear(4, 4).to(torch.bfloat16)
    torch.nn.init.ones_(model.weight)
    average = module.Average(decay=0.999)
    average.on_train_begin(None, TrainerState(), None, model=model)
    torch.nn.init.constant_(model.weight, 1.5)
    for _ in range(500):
        average.on_step_end(None, None, None, model=model)
    assert average.kept["weight"][0, 0].item() == pytest.approx(1.5 - 0.5 * 0.999**500, rel=1e-4)
    average.put_into(model)
    assert model.weight[0, 0].item() == pytest.approx(1.2, abs=0.01)


@pytest.mark.parametrize(
    "name, more, first, last",
    [
        ("linear", {}, 0, 0.125), ("cosine_with_min_lr", {"min_lr_rate": 0.1}, 0, 0.134),
        ("warmup_stable_decay", {"num_decay_steps": 4}, 0, 0.146),
    ],
)  # fmt: skip
def test_with_warm_up_the_first_step_has_the_rate_0_and_the_last_the_end_of_the_schedule(name, more, first, last):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = get_scheduler(name, optimizer, 2, 10, scheduler_specific_kwargs=more)
    rates = []
    for _ in range(10):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert (rates[0], rates[-1]) == pytest.approx((first, last), abs=1e-3)


def test_a_cosine_with_a_least_rate_wants_that_rate():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    with pytest.raises(ValueError, match="min_lr_rate"):
        get_scheduler("cosine_with_min_lr", optimizer, 2, 10, scheduler_specific_kwargs={})


@pytest.mark.parametrize("name, moments", [("lion_32bit", 1), ("ademamix", 3), ("rmsprop", 1), ("adagrad", 1), ("sgd", 0)])
def test_other_names_of_optim_keep_as_many_moments_as_the_page_says(name, moments):
    module = load("optimizers/state_bytes.py")
    model = LlamaForCausalLM(LlamaConfig(**module.small))
    given = TrainingArguments("out", optim=name, use_cpu=True, report_to="none")
    optimizer = Trainer(model=model, args=given).create_optimizer()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    assert module.state_bytes(optimizer) / model.num_parameters() == pytest.approx(4 * moments, abs=0.01)


def test_lion_gets_the_second_beta_of_adam():
    given = TrainingArguments("out", optim="lion_8bit", use_cpu=True, report_to="none")
    trainer = Trainer(model=LlamaForCausalLM(LlamaConfig(**load("optimizers/state_bytes.py").small)), args=given)
    assert trainer.create_optimizer().param_groups[0]["betas"] == (0.9, 0.999)


def test_the_experts_of_a_mixture_have_three_dimensions_and_muon_takes_two():
    sizes = dict(hidden_size=64, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=1, vocab_size=500)
    sizes |= dict(num_attention_heads=4, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2, head_dim=16)
    model = AutoModelForCausalLM.from_config(Qwen3MoeConfig(**sizes))
    experts = [p for name, p in model.named_parameters() if ".experts." in name]
    assert experts and all(p.ndim == 3 for p in experts)
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon(experts)
