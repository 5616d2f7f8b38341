"""docs/training/model-parallelism.md and docs/training/long-sequences.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import contextlib
import functools
import re
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import datasets
import pytest
import torch
import trl
from accelerate import Accelerator, ParallelismConfig, big_modeling
from programs import run, shown_message
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.distributed.pipelining import schedules
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3NextConfig,
    Trainer,
)
from transformers.distributed import DistributedConfig
from transformers.masking_utils import find_packed_sequence_indices

from evidence.launch import run_ranks

TOLERANCE = 2e-5  # the programs print five digits after the point


def losses(text):
    return [float(found) for found in re.findall(r"^loss ([\d.]+)$", text, re.M)]


def printed_once(name, *arguments, processes=2):
    """The losses, which one of the ranks prints. On a CPU DeepSpeed compiles an operator at its first start, for minutes."""
    ranks = run(name, *arguments, processes=processes, torchrun=True, timeout=900).ranks
    found = [losses(rank.stdout) for rank in ranks if losses(rank.stdout)]
    assert len(found) == 1, f"{name}: {[rank.stdout for rank in ranks]}"
    return found[0]


def one_process():
    return losses(run("model_parallelism/one_process.py").stdout)


@functools.cache
def cases(which):
    """[{case: its lines} of each rank]."""
    program = Path(__file__).parent / "ranks" / "model_parallelism.py"
    ended = run_ranks(program, which, processes={"two": 2, "four": 4}[which], timeout=600)
    parts = ([part.split("\n") for part in text.split("=== ")[1:]] for text in ended.stdout)
    return [{lines[0]: [line for line in lines[1:] if line] for lines in rank} for rank in parts]


def said(name, which="two"):
    """What the first rank says in a case."""
    return cases(which)[0][name]


def error(name):
    return shown_message("model_parallelism", name)


def refused(name, *arguments, processes=2):
    """What the ranks of a program say that ends with an error."""
    ended = run(name, *arguments, processes=processes, check=False)
    assert ended.returncode
    return ended.stderr


# The programs give the losses of one process


@pytest.mark.parametrize(
    "program",
    [
        ["model_parallelism/tensor_parallel.py"],
        ["model_parallelism/parallelize.py", "tp"],
        ["model_parallelism/parallelize.py", "sp"],
        ["model_parallelism/ring_attention.py"],
        ["model_parallelism/ulysses.py"],
        ["model_parallelism/ulysses_trainer.py"],
        ["model_parallelism/pipeline.py", "1F1B"],
        ["model_parallelism/pipeline.py", "GPipe"],
        ["model_parallelism/pipeline.py", "Interleaved1F1B"],
        ["model_parallelism/pipeline.py", "ZBVZeroBubble"],
    ],
    ids=lambda program: " ".join(program),
)
def test_two_processes_give_the_losses_of_one(program):
    assert printed_once(*program) == pytest.approx(one_process(), abs=TOLERANCE)


@pytest.mark.parametrize(
    "program",
    [
        ["model_parallelism/two_dimensional.py", "2", "2"],
        ["model_parallelism/ring_attention.py"],
        ["model_parallelism/pipeline.py", "1F1B"],
    ],
    ids=lambda program: " ".join(program),
)
def test_four_processes_give_the_losses_of_one(program):
    assert printed_once(*program, processes=4) == pytest.approx(one_process(), abs=TOLERANCE)


def test_stages_shards_and_split_matrices_on_eight_processes_give_the_losses_of_one():
    three = printed_once("model_parallelism/three_dimensional.py", "2", "2", "2", processes=8)
    assert three == pytest.approx(one_process(), abs=TOLERANCE)


def test_experts_of_transformers_on_two_processes_give_the_losses_of_one():
    one, two = (printed_once("model_parallelism/experts_transformers.py", processes=number) for number in (1, 2))
    assert two == pytest.approx(one, abs=TOLERANCE)
    assert one[-1] < one[0]


def test_experts_written_out_give_the_losses_of_a_loop_without_any_exchange():
    torch.manual_seed(0)
    embedding, router, head = torch.nn.Embedding(64, 32), torch.nn.Linear(32, 4), torch.nn.Linear(32, 64)
    up = torch.nn.Parameter(torch.randn(4, 32, 64) / 32**0.5)
    down = torch.nn.Parameter(torch.randn(4, 64, 32) / 8)
    ids = torch.randint(64, (256,), generator=torch.Generator().manual_seed(1))
    weights = [*embedding.parameters(), *router.parameters(), *head.parameters(), up, down]
    optimizer, expected = torch.optim.SGD(weights, lr=0.1), []
    for _ in range(4):
        hidden = embedding(ids)
        weight, expert = router(hidden).softmax(-1).max(-1)
        inner = torch.nn.functional.silu(torch.einsum("th,thi->ti", hidden, up[expert]))
        logits = head(hidden + weight[:, None] * torch.einsum("ti,tih->th", inner, down[expert]))
        loss = torch.nn.functional.cross_entropy(logits, ids.roll(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert printed_once("model_parallelism/expert_parallel.py") == pytest.approx(expected, abs=TOLERANCE)


def test_adam_hides_a_gradient_that_is_twice_too_large_and_sgd_does_not():
    def trained(kind, factor):
        weight = torch.nn.Parameter(torch.ones(4))
        optimizer = kind([weight], lr=0.1)
        for _ in range(3):
            (weight**2).sum().backward()
            weight.grad *= factor
            optimizer.step()
            optimizer.zero_grad()
        return weight.detach()

    assert torch.allclose(trained(torch.optim.AdamW, 1), trained(torch.optim.AdamW, 2), atol=1e-6)
    assert not torch.allclose(trained(torch.optim.SGD, 1), trained(torch.optim.SGD, 2), atol=1e-2)


# Tensor parallelism


def test_from_pretrained_splits_projections_embedding_and_output_layer_and_leaves_the_norms():
    split = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens", "lm_head"]
    assert said("split modules") == [str(sorted(split))]


@pytest.mark.parametrize(
    "name",
    [
        "mesh",
        "mesh_transformers",
        "world_size",
        "from_config",
        "heads",
        "clip",
        "trainer_cpu",
        "ep_size",
        "ep_dense",
        "experts",
    ],
)
def test_bad_input_gives_the_message_on_the_page(name):
    assert said(name)[0] == error(name)


def test_pytorchs_own_plan_gives_the_same_message_for_heads_that_do_not_divide():
    assert said("heads in torch")[-1] == error("heads")


def test_lora_on_a_split_model_trains_layers_cut_by_columns_and_fails_on_those_cut_by_rows():
    whole, cut = ([float(line.removeprefix("loss ")) for line in said(name)] for name in ("lora", "lora by columns"))
    assert len(whole) == 3 and cut == pytest.approx(whole, rel=5e-6)  # sums of two halves round otherwise: the last printed digit
    assert re.match(r"RuntimeError: shape '\[.*\]' is invalid for input of size", said("lora by rows")[0])


def test_the_default_adamw_takes_sharded_and_whole_weights_and_the_fused_one_does_not():
    assert not any("Error" in line for line in said("default adamw"))
    assert "got mixed torch.Tensor and DTensor" in said("fused adamw")[-1]


@pytest.mark.parametrize(("name", "which"), [("clip apart", "two"), ("clip each mesh apart", "four")])
def test_accelerate_and_trainer_take_the_norms_apart(name, which):
    of_one_process, *apart = [float(line.split()[1]) for line in said(name, which) if line.startswith("norm")]
    assert len(apart) == 2  # of Accelerate, of Trainer
    assert apart == pytest.approx([of_one_process] * 2, rel=5e-4)  # kernels of another CPU round otherwise


def test_fsdp2_around_tensor_parallelism_leaves_two_meshes_which_torch_does_not_clip_together():
    assert said("clip_meshes", "four")[0] == error("clip_meshes")


@pytest.mark.parametrize("program", [["model_parallelism/parallelize.py", "tp"], ["model_parallelism/ulysses.py"]])
def test_the_programs_refuse_heads_that_do_not_divide(program):
    assert error("own_heads") in refused(*program, processes=4)


def test_a_mesh_smaller_than_the_world_is_no_error():
    assert said("smaller mesh") == []


def test_enable_sequence_parallel_does_nothing_in_this_version():
    assert said("enable_sequence_parallel")[-1] == "tokens in the norm 32"


def test_the_argument_tp_plan_of_from_pretrained_is_deprecated():
    assert "Passing `tp_plan` directly to `from_pretrained` is deprecated" in said("tp_plan")[-1]


# Context parallelism and Ulysses


def test_context_parallel_of_pytorch_has_no_kernel_on_a_cpu():
    assert error("context_parallel_cpu") in refused("model_parallelism/context_parallel.py")


def test_positions_with_a_jump_look_like_packed_sequences():
    two_pieces, one_piece = torch.tensor([[*range(8), *range(24, 32)]]), torch.arange(8, 24)[None]
    assert find_packed_sequence_indices(two_pieces) is not None
    assert find_packed_sequence_indices(one_piece) is None


def test_deepspeed_copies_two_key_and_value_heads_for_four_ranks():
    found = printed_once("model_parallelism/ulysses_trainer.py", processes=4)
    assert found == pytest.approx(one_process(), abs=TOLERANCE)


# Pipeline parallelism


def test_fewer_micro_batches_than_stages_are_an_error_under_1f1b_and_none_under_gpipe():
    assert error("micro_batches") in refused("model_parallelism/pipeline.py", "1F1B", 1)
    assert len(printed_once("model_parallelism/pipeline.py", "GPipe", 1)) == 4


def test_the_program_refuses_a_batch_that_does_not_divide():
    assert error("batch") in refused("model_parallelism/pipeline.py", "1F1B", 3)


def test_pp_size_of_transformers_gives_no_loss_and_no_gradient_to_the_first_stage():
    assert said("pp_size")[-1] == "loss None gradient False"


@pytest.mark.parametrize(("attention", "sees_later_tokens"), [("sdpa", False), ("eager", True)])
def test_a_layer_without_a_mask_is_causal_under_sdpa_and_not_under_eager_attention(attention, sees_later_tokens):
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    torch.manual_seed(0)
    llama = LlamaForCausalLM._from_config(config, attn_implementation=attention).model
    hidden = torch.randn(1, 8, 32)
    other = torch.cat([hidden[:, :-1], torch.randn(1, 1, 32)], 1)  # another last token
    rotary = llama.rotary_emb(hidden, torch.arange(8)[None])
    first, second = (llama.layers[0](x, position_embeddings=rotary, attention_mask=None)[:, 0] for x in (hidden, other))
    assert torch.equal(first, second) is not sees_later_tokens


# Several dimensions


def test_transformers_refuses_fsdp_with_a_pipeline():
    with pytest.raises(ValueError, match="Combining FSDP with pipeline parallelism is not supported yet"):
        DistributedConfig(fsdp_size=2, pp_size=2)


def test_the_experts_lie_on_the_ranks_of_data_and_tensor_parallelism_and_ep_multiplies_nothing():
    assert DistributedConfig(fsdp_size=4, tp_size=2, ep_size=8).efsdp_size == 1
    assert DistributedConfig(fsdp_size=4, tp_size=2, ep_size=2).efsdp_size == 4


def test_the_data_parallel_ranks_are_what_tensor_context_and_sequence_parallelism_leave():
    sizes = {f"get_{name}_size": lambda: 2 for name in ("tp", "cp", "sp")}
    arguments = SimpleNamespace(world_size=16, gradient_accumulation_steps=1)
    total = Trainer.get_total_train_batch_size(SimpleNamespace(_train_batch_size=3, **sizes), arguments)
    assert total == 3 * 16 / (2 * 2 * 2)


def test_accelerate_puts_tensor_parallelism_innermost():
    printed = run("model_parallelism/accelerate_mesh.py", processes=4).ranks[0].stdout
    assert printed.strip() == "('dp_shard', 'tp') [[0, 1], [2, 3]]"


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("accelerate_dp_tp", {"dp_replicate_size": 2, "tp_size": 2}),
        ("accelerate_cp_sp", {"cp_size": 2, "sp_size": 2}),
    ],
)
def test_accelerate_refuses_what_it_cannot_combine(name, sizes):
    with pytest.raises(ValueError) as failed:
        ParallelismConfig(**sizes)
    assert f"ValueError: {failed.value}" == error(name)


def test_accelerate_refuses_a_layout_of_other_size_than_the_world():
    class TwoProcesses:
        multi_device, num_processes, is_fsdp2, is_main_process = True, 2, False, True

    with pytest.raises(ValueError) as failed:
        ParallelismConfig(tp_size=2, dp_shard_size=4)._validate_accelerator(TwoProcesses())
    assert f"ValueError: {failed.value}" == error("accelerate_total")


def test_accelerate_refuses_fsdp_where_no_rank_is_left_to_shard_over():
    class TwoProcesses:
        multi_device, num_processes, is_fsdp2, is_main_process = True, 2, True, True

    with pytest.raises(ValueError) as failed:
        ParallelismConfig(tp_size=2)._validate_accelerator(TwoProcesses())
    assert f"ValueError: {failed.value}" == error("accelerate_no_shard")


def test_trainers_say_what_context_parallelism_does_not_go_with(tmp_path, monkeypatch):
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
    in_one = mock.Mock(cp_enabled=True, cp_backend="torch", sp_enabled=False, tp_enabled=False)  # as if there were several ranks
    monkeypatch.setattr(Accelerator, "parallelism_config", in_one)
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")), eos_token="a")
    rows = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7, 8]] * 4})
    for packing in (False, True):
        arguments = trl.SFTConfig(tmp_path, packing=packing, use_cpu=True, bf16=False, report_to="none")
        with pytest.raises(ValueError, match="Packing is not compatible with context") if packing else contextlib.nullcontext():
            trl.SFTTrainer(LlamaForCausalLM(config), args=arguments, train_dataset=rows, processing_class=words)
    for sizes in ({"cp_size": 2}, {"sp_size": 2}):
        with pytest.raises(ValueError, match="GRPOTrainer does not support sequence-dim parallelism"):
            trl.GRPOConfig(tmp_path, use_cpu=True, bf16=False, parallelism_config=ParallelismConfig(**sizes))
    eager = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with pytest.raises(ValueError, match="Context parallelism is supported only with SDPA attention"):
        Trainer._prepare_context_parallel_inputs(SimpleNamespace(accelerator=Accelerator), eager, {})


# What readers ask


@pytest.fixture(scope="module")
def hybrid():
    config = Qwen3NextConfig(num_hidden_layers=4, vocab_size=100, num_experts=4)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def test_three_of_four_layers_of_a_hybrid_are_linear_and_accelerate_refuses_to_cut_their_sequence(hybrid):
    assert hybrid.config.layer_types.count("linear_attention") == 3
    with pytest.raises(ValueError) as refused:
        big_modeling._refuse_recurrent_layers_under_sequence_parallelism(hybrid)
    assert f"ValueError: {refused.value}" == shown_message("model_parallelism", "recurrent")


def test_accelerate_refuses_a_ring_for_hybrids_and_for_sliding_windows(hybrid):
    windows = SimpleNamespace(config=SimpleNamespace(layer_types=["sliding_attention", "full_attention"]))
    for model in (hybrid, windows):
        with pytest.raises(ValueError, match="Context parallelism does not support attention layers of type"):
            big_modeling._attach_context_parallel_hooks(model)


def test_dual_pipe_v_wants_two_stages_for_each_rank_and_as_many_micro_batches_as_stages():
    def schedule(stages, micro_batches):
        found = [mock.Mock(group_size=2, group_rank=0, num_stages=4, stage_index=number) for number in range(stages)]
        return schedules.ScheduleDualPipeV(found, micro_batches)

    with mock.patch.object(schedules, "_check_torch_compile_compatibility"):
        with pytest.raises(ValueError, match="exactly 2 stages per rank"):
            schedule(3, 8)
        with pytest.raises(
            ValueError, match="at least as many microbatches as stages, but got 3 microbatches and 4 stages"
        ):
            schedule(2, 3)


def test_transformers_exchanges_tokens_by_all_to_all_and_knows_no_deep_ep():
    from transformers.distributed.expert_parallel import EPImplementationInterface

    assert "all_to_all" in EPImplementationInterface._global_mapping
    assert not [name for name in EPImplementationInterface._global_mapping if "deepep" in name.lower()]
