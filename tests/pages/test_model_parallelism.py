"""docs/training/model-parallelism.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import ast
import collections
import dataclasses
import inspect
import re
import runpy
import socket
import sys
from pathlib import Path

import pytest
import torch
from accelerate import ParallelismConfig
from accelerate.utils import DeepSpeedSequenceParallelConfig
from programs import too_much_to_read
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.distributed import DistributedConfig
from transformers.masking_utils import find_packed_sequence_indices

from evidence.launch import run_ranks
from dryrun.ranks import RankTracker

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "snippets" / "model_parallelism"
SNIPPETS = sorted(FOLDER.glob("*.py"))
TOLERANCE = 2e-5  # the programs print five digits behind the point
ALONE = {}  # program -> losses on one process
SCHEDULES = ("GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble")

# Runs several programs in the same processes, since most of the time of a run goes into imports. The process group is
# made once. What a program prints, or the error it ends with, stands behind its name.
DRIVER = f"""
import runpy
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from transformers import AutoModelForCausalLM, Trainer  # what the programs import, for warm.py
from transformers.utils.logging import disable_progress_bar

FOLDER = {str(FOLDER)!r}
warnings.simplefilter("ignore")
disable_progress_bar()
dist.init_process_group("gloo")
end = dist.destroy_process_group
dist.init_process_group = dist.destroy_process_group = lambda *args, **kwargs: None
order = []


def recorded(name, letter):
    run = getattr(PipelineStage, name)

    def wrapper(stage, number, *args, **kwargs):
        order.append(f"{{letter}}{{number}}")
        return run(stage, number, *args, **kwargs)

    setattr(PipelineStage, name, wrapper)


recorded("forward_one_chunk", "F")
recorded("backward_one_chunk", "B")


def report(name, run):
    print(f"=== {{name}}")
    order.clear()
    try:
        run()
    except (Exception, SystemExit) as error:
        print(f"{{type(error).__name__}}: {{error}}")
    print(f"order {{' '.join(order)}}", flush=True)
    dist.barrier()


def program(name, *args):
    sys.argv = [name, *args]
    runpy.run_path(f"{{FOLDER}}/{{name}}.py", run_name="__main__")


for spec in sys.argv[1].split():
    name, *args = spec.split(",")
    report(spec, lambda: program(name, *args))
"""

BAD_INPUT = """
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainingArguments
from transformers.distributed import DistributedConfig

SMALL = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, use_cache=False)
THREE = SMALL | dict(num_attention_heads=3, num_key_value_heads=3, hidden_size=66, head_dim=22)
EXPERTS = Qwen3MoeConfig(**SMALL, head_dim=16, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=32)
ids = torch.arange(64).view(2, 32)
for folder, model in (("two", LlamaForCausalLM(LlamaConfig(**SMALL))), ("three", LlamaForCausalLM(LlamaConfig(**THREE))),
                      ("seven", Qwen3MoeForCausalLM(EXPERTS))):
    if dist.get_rank() == 0:
        model.save_pretrained(folder)
dist.barrier()


def load(folder, kind=LlamaForCausalLM, **sizes):
    return kind.from_pretrained(folder, distributed_config=DistributedConfig(**sizes))


def three_heads_in_torch():
    model = LlamaForCausalLM(LlamaConfig(**THREE))
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, init_device_mesh("cpu", (2,)), plan)
    model(input_ids=ids)


def optimizer_step(**options):
    model = load("two", tp_size=2)
    model(input_ids=ids, labels=ids).loss.backward()
    torch.optim.AdamW(model.parameters(), **options).step()


def clip():
    model = load("two", tp_size=2)
    model(input_ids=ids, labels=ids).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def clip_apart():
    def by_trainer(parameters, longest):
        return Trainer._mixed_mesh_grad_norm(None, model, longest)

    whole = torch.nn.utils.clip_grad_norm_
    for clip in (whole, Accelerator(cpu=True).clip_grad_norm_, by_trainer):
        model = LlamaForCausalLM.from_pretrained("two") if clip is whole else load("two", tp_size=2)
        model(input_ids=ids, labels=ids).loss.backward()
        print(f"norm {clip(model.parameters(), 0.5).item():.4f}")


def trainer():
    arguments = TrainingArguments("out", max_steps=1, use_cpu=True, disable_tqdm=True)
    Trainer(model=load("two", tp_size=2), args=arguments, train_dataset=[{"input_ids": ids[0], "labels": ids[0]}] * 4)


def pipeline_of_transformers():
    output = load("two", pp_size=2)(input_ids=ids, labels=ids)
    print("loss", output.loss, "gradient", output.logits.requires_grad)


def sequence_parallel_of_transformers():
    model, widths = load("two", tp_size=2, enable_sequence_parallel=True), []
    model.model.layers[0].input_layernorm.register_forward_hook(lambda module, given, out: widths.append(out.size(1)))
    model(input_ids=ids)
    print("tokens in the norm", *widths)


def sharded():
    model = load("two", tp_size=2)
    print(sorted({name.split(".")[-2] for name, p in model.named_parameters() if type(p.data).__name__ == "DTensor"}))


report("mesh", lambda: init_device_mesh("cpu", (4, 2)))
report("smaller mesh", lambda: init_device_mesh("cpu", (1,)))
report("mesh_transformers", lambda: load("two", tp_size=8))
report("world_size", lambda: DistributedConfig(tp_plan="auto", fsdp_size=3))
report("from_config", lambda: LlamaForCausalLM._from_config(LlamaConfig(**SMALL), distributed_config=DistributedConfig(tp_size=2)))
report("heads", lambda: load("three", tp_size=2)(input_ids=ids))
report("heads in torch", three_heads_in_torch)
report("default adamw", optimizer_step)
report("fused adamw", lambda: optimizer_step(fused=True))
report("clip", clip)
report("clip apart", clip_apart)
AcceleratorState._reset_state(reset_partial_state=True)
report("trainer_cpu", trainer)
report("pp_size", pipeline_of_transformers)
report("enable_sequence_parallel", sequence_parallel_of_transformers)
report("sharded", sharded)
report("ep_size", lambda: DistributedConfig(ep_size=2))
report("ep_dense", lambda: load("two", fsdp_size=2, ep_size=2))
report("experts", lambda: load("seven", Qwen3MoeForCausalLM, fsdp_size=2, ep_size=2))
"""
TRAINER = """
import deepspeed

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # 40 s of C++, for what only inference calls
deepspeed.runtime.compiler.compile = lambda **_: lambda function: function  # Muon, which nobody uses here, loads Inductor
AcceleratorState._reset_state(reset_partial_state=True)  # what the bad input left
report("ulysses_trainer", lambda: program("ulysses_trainer"))  # last: DeepSpeed replaces the attention for good
"""
TWO_MESHES = """
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

mesh, ids = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp")), torch.arange(64).view(2, 32)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, use_cache=False)


def with_gradients(split=True):
    torch.manual_seed(0)
    model, rows = LlamaForCausalLM(config), ids
    if split:
        plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()}
        parallelize_module(model.model.layers[0].mlp, mesh["tp"], plan)
        fully_shard(model, mesh=mesh["dp"])
        rows = ids.chunk(2)[mesh.get_local_rank("dp")]
    model(input_ids=rows, labels=rows).loss.backward()
    return model


def clip_each_mesh_apart():
    norms = (
        torch.nn.utils.clip_grad_norm_(with_gradients(split=False).parameters(), 0.5),
        Accelerator(cpu=True).clip_grad_norm_(with_gradients().parameters(), 0.5),
        Trainer._mixed_mesh_grad_norm(None, with_gradients(), 0.5),
    )
    print(*(f"norm {norm.item():.4f}" for norm in norms), sep="\\n")


report("clip_meshes", lambda: torch.nn.utils.clip_grad_norm_(with_gradients().parameters(), 0.5))
report("clip each mesh apart", clip_each_mesh_apart)
"""
END = "\ndist.barrier()\nend()\n"


def outputs(run):
    """[{name: lines} of each rank]."""
    parsed = []
    for text in run.stdout:
        parts = [part.split("\n") for part in text.split("=== ")[1:]]
        parsed.append({lines[0]: lines[1:] for lines in parts})
    return parsed


def driven(tmp, processes, specs, more=""):
    program = tmp / "driver.py"
    program.write_text(DRIVER + more + END)
    run = run_ranks(program, specs, processes=processes, timeout=400, folder=tmp)
    return outputs(run)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    pipelines = [f"pipeline,{schedule}" for schedule in SCHEDULES]
    bad = ["pipeline,1F1B,1", "pipeline,GPipe,1", "pipeline,1F1B,3", "context_parallel"]
    programs = ["parallelize,tp", "parallelize,sp", "ring_attention", "ulysses", *pipelines]
    specs = " ".join([*programs, "expert_parallel", "experts_transformers", *bad])
    return driven(tmp_path_factory.mktemp("two"), 2, specs, BAD_INPUT + TRAINER)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    pipelines = [f"pipeline,{schedule}" for schedule in SCHEDULES]
    specs = ["two_dimensional,2,2", "two_dimensional,4,1", *pipelines, "ring_attention", "expert_parallel"]
    bad = ["parallelize,tp", "ulysses", "two_dimensional,4,2"]
    return driven(tmp_path_factory.mktemp("four"), 4, " ".join([*specs, "accelerate_mesh", *bad]), TWO_MESHES)


@pytest.fixture
def one(capsys, monkeypatch, tmp_path):
    """Runs a program in this process alone, once; returns its losses."""

    def run(name):
        if name in ALONE:
            return ALONE[name]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}
        alone["MASTER_PORT"] = port
        for key, value in alone.items():
            monkeypatch.setenv(key, str(value))
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        ALONE[name] = losses(capsys.readouterr().out.splitlines())
        return ALONE[name]

    return run


def losses(lines):
    return [float(line.split()[1]) for line in lines if line.startswith("loss ") and line.split()[1][0].isdigit()]


def everywhere(ranks, name):
    """The losses that one of the ranks printed."""
    found = [losses(rank[name]) for rank in ranks if losses(rank[name])]
    assert len(found) == 1, f"{name}: {[rank[name] for rank in ranks]}"
    return found[0]


def error(name):
    return (FOLDER / "errors" / f"{name}.txt").read_text().strip()


def message(lines):
    return next(line for line in lines if not line.startswith(("order", "loss")) and line)


# The programs give the losses of one process


def test_one_process_learns(one):
    first, *_, last = one("one_process")
    assert last < first - 0.1


@pytest.mark.parametrize(
    "name",
    [
        "parallelize,tp",
        "parallelize,sp",
        "ring_attention",
        "ulysses",
        *(f"pipeline,{schedule}" for schedule in SCHEDULES),
    ],
)
def test_two_processes_give_the_losses_of_one(two, one, name):
    assert everywhere(two, name) == pytest.approx(one("one_process"), abs=TOLERANCE)


@pytest.mark.parametrize(
    "name",
    [
        "two_dimensional,2,2",
        "two_dimensional,4,1",
        "ring_attention",
        *(f"pipeline,{schedule}" for schedule in SCHEDULES),
    ],
)
def test_four_processes_give_the_losses_of_one(four, one, name):
    assert everywhere(four, name) == pytest.approx(one("one_process"), abs=TOLERANCE)


@pytest.mark.parametrize("name", ["expert_parallel", "experts_transformers"])
def test_experts_on_two_processes_give_the_losses_of_one(two, one, name):
    assert everywhere(two, name) == pytest.approx(one(name), abs=TOLERANCE)
    assert one(name)[-1] < one(name)[0]


def test_experts_written_out_give_the_losses_of_a_loop_without_any_exchange(two, four):
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
    for ranks in (two, four):
        assert everywhere(ranks, "expert_parallel") == pytest.approx(expected, abs=TOLERANCE)


def test_the_first_program_runs_by_torchrun_as_it_stands_and_gives_the_losses_of_one_process(one):
    run = run_ranks(FOLDER / "tensor_parallel.py", processes=2, timeout=300)
    assert losses(run.stdout[0].splitlines()) == pytest.approx(one("one_process"), abs=TOLERANCE)


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


def test_from_pretrained_splits_projections_embedding_and_output_layer_and_leaves_the_norms(two):
    assert message(two[0]["sharded"]) == str(
        sorted(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens", "lm_head"])
    )


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
def test_bad_input_gives_the_message_on_the_page(two, name):
    assert message(two[0][name]) == error(name)


def test_pytorchs_own_plan_gives_the_same_message_for_heads_that_do_not_divide(two):
    assert message(two[0]["heads in torch"]) == error("heads")


def test_the_default_adamw_takes_sharded_and_whole_weights_and_the_fused_one_does_not(two):
    assert not any("Error" in line for line in two[0]["default adamw"])
    assert "got mixed torch.Tensor and DTensor" in message(two[0]["fused adamw"])


def test_accelerate_and_trainer_take_the_norm_of_the_two_kinds_apart(two):
    norms = [line for line in two[0]["clip apart"] if line.startswith("norm")]
    assert len(norms) == 3
    assert len(set(norms)) == 1  # that of one process, of Accelerate, of Trainer
    assert "if self._has_mixed_mesh_grads(model):" in inspect.getsource(Trainer._clip_grad_norm)


def test_fsdp2_around_tensor_parallelism_leaves_two_meshes_which_torch_does_not_clip_together(four):
    assert message(four[0]["clip_meshes"]) == error("clip_meshes")


def test_accelerate_and_trainer_take_the_norm_of_each_mesh_apart(four):
    norms = [line for line in four[0]["clip each mesh apart"] if line.startswith("norm")]
    assert len(norms) == 3
    assert len(set(norms)) == 1  # that of one process, of Accelerate, of Trainer


@pytest.mark.parametrize(
    ("way", "of_a_layer", "outside"),
    [
        ("tp", {"all-reduce": 4}, {"all-reduce": 2, "all-gather": 1}),
        (
            "sp",
            {"all-gather": 4, "reduce-scatter": 4, "all-reduce": 2},
            {"all-gather": 3, "reduce-scatter": 2, "all-reduce": 1},
        ),
    ],
)
def test_a_layer_sends_four_times_and_with_sequence_parallelism_its_two_norms_once_more_in_the_optimizers_step(
    way, of_a_layer, outside, monkeypatch
):
    """The program of the page on one of two ranks that only play: what they would send is counted."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["parallelize", way])
    other = torch.nn.Linear(1, 1)  # the tracker names a model's memory, which nobody asks for here
    try:
        with RankTracker(other, torch.optim.SGD(other.parameters())) as tracker:
            runpy.run_path(str(FOLDER / "parallelize.py"), run_name="__main__")
    finally:
        if torch.distributed.is_initialized():  # the program ends it, unless it fails
            torch.distributed.destroy_process_group()
    found = {collective.kind: collective.count for collective in tracker.collectives.values()}
    layers, steps = 8, 4
    expected = collections.Counter({kind: layers * count for kind, count in of_a_layer.items()})
    assert found == {kind: steps * count for kind, count in (expected + collections.Counter(outside)).items()}


def test_a_mesh_larger_than_the_ranks_stops_the_two_dimensional_program(four):
    assert message(four[0]["two_dimensional,4,2"]) == error("mesh").replace("size 2", "size 4")


@pytest.mark.parametrize("name", ["parallelize,tp", "ulysses"])
def test_the_programs_refuse_heads_that_do_not_divide(four, name):
    assert message(four[0][name]) == f"SystemExit: {error('own_heads')}"


def test_a_mesh_smaller_than_the_world_is_no_error(two):
    assert "Error" not in message([*two[0]["smaller mesh"], "none"])


def test_enable_sequence_parallel_does_nothing_in_this_version(two):
    assert message(two[0]["enable_sequence_parallel"]) == "tokens in the norm 32"
    assert "Not wired up yet" in DistributedConfig.__doc__


def test_the_argument_tp_plan_of_from_pretrained_is_deprecated():
    source = inspect.getsource(LlamaForCausalLM.from_pretrained)
    assert "Passing `tp_plan` directly to `from_pretrained` is deprecated" in source


# Context parallelism and Ulysses


def test_context_parallel_of_pytorch_has_no_kernel_on_a_cpu(two):
    assert [message(rank["context_parallel"]) for rank in two] == [error("context_parallel_cpu")] * 2


def test_positions_with_a_jump_look_like_packed_sequences():
    two_pieces, one_piece = torch.tensor([[*range(8), *range(24, 32)]]), torch.arange(8, 24)[None]
    assert find_packed_sequence_indices(two_pieces) is not None
    assert find_packed_sequence_indices(one_piece) is None


def test_ulysses_by_trainer_gives_the_losses_of_one_process(two, one):
    assert everywhere(two, "ulysses_trainer") == pytest.approx(one("one_process"), abs=TOLERANCE)


def test_deepspeed_clips_gradients_at_1_unless_the_configuration_says_otherwise():
    from deepspeed.runtime.constants import GRADIENT_CLIPPING_DEFAULT

    assert GRADIENT_CLIPPING_DEFAULT == 1.0


def test_the_trainer_program_for_ulysses_takes_arguments_of_the_installed_versions():
    known = {
        kind.__name__: set(inspect.signature(kind).parameters)
        for kind in (TrainingArguments, ParallelismConfig, DeepSpeedSequenceParallelConfig, LlamaConfig)
    }
    tree = ast.parse((FOLDER / "ulysses_trainer.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") in known]
    assert len(calls) == 4
    for node in calls:
        given = {keyword.arg for keyword in node.keywords}
        assert given <= known[node.func.id], f"{node.lineno}: {sorted(given - known[node.func.id])}"


def test_the_layout_of_the_trainer_program_for_ulysses_is_valid():
    handler = DeepSpeedSequenceParallelConfig(sp_attn_implementation="sdpa")
    layout = ParallelismConfig(sp_backend="deepspeed", sp_size=2, sp_handler=handler)
    assert layout.total_size == 2
    assert layout.build_device_mesh("cpu") is None  # DeepSpeed makes its groups itself


def test_deepspeed_lets_more_ranks_than_key_and_value_heads_where_one_divides_the_other():
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    source = inspect.getsource(UlyssesSPAttentionHF)
    assert "self.world_size % self.global_kv_head_count == 0" in source
    assert "Attention head count {attn_head_count} is not divisible by SP size" in source


# Pipeline parallelism


def test_fewer_micro_batches_than_stages_are_an_error_under_1f1b_and_none_under_gpipe(two):
    assert message(two[0]["pipeline,1F1B,1"]) == error("micro_batches")
    assert len(everywhere(two, "pipeline,GPipe,1")) == 4


def test_the_program_refuses_a_batch_that_does_not_divide(two):
    assert message(two[0]["pipeline,1F1B,3"]) == f"SystemExit: {error('batch')}"


def test_under_1f1b_the_first_rank_makes_p_forward_passes_then_one_backward_and_one_forward_in_turn(four):
    def step(rank):
        actions = next(line for line in four[rank]["pipeline,1F1B"] if line.startswith("order")).split()[1:]
        return actions[: len(actions) // 4]

    assert step(0) == ["F0", "F1", "F2", "F3", "B0", "F4", "B1", "F5", "B2", "F6", "B3", "F7", "B4", "B5", "B6", "B7"]
    assert step(3) == [f"{kind}{number}" for number in range(8) for kind in "FB"]


def test_under_gpipe_every_rank_makes_all_forward_passes_first(four):
    for rank in four:
        actions = next(line for line in rank["pipeline,GPipe"] if line.startswith("order")).split()[1:]
        assert actions[:16] == [f"{kind}{number}" for kind in "FB" for number in range(8)]


def test_pp_size_of_transformers_gives_no_loss_and_no_gradient_to_the_first_stage(two):
    assert message([line.replace("loss", "got") for line in two[0]["pp_size"]]) == "got None gradient False"


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
    source = inspect.getsource(Trainer.get_total_train_batch_size)
    assert "args.world_size // self.get_tp_size() // self.get_cp_size() // self.get_sp_size()" in source


def test_accelerate_puts_tensor_parallelism_innermost(four):
    assert message(four[0]["accelerate_mesh"]) == "('dp_shard', 'tp') [[0, 1], [2, 3]]"


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


def test_the_names_of_the_sizes_of_transformers():
    names = {field.name for field in dataclasses.fields(DistributedConfig)}
    assert {"tp_size", "fsdp_size", "dp_replicate_size", "pp_size", "ep_size", "ep_implementation"} <= names


def test_programs_take_a_gpu_each_or_none_and_wait_for_each_other_at_the_end():
    for path in SNIPPETS:
        text = path.read_text()
        if path.name == "one_process.py":
            continue
        assert "gpu = torch.cuda.device_count() >= int(os.environ" in text, path.name
        if "dist.init_process_group" in text:  # init_device_mesh and DeepSpeed do it themselves
            assert 0 < text.find("torch.cuda.set_device(") < text.find("dist.init_process_group("), path.name
        if path.name != "ulysses_trainer.py":  # DeepSpeed made its group
            assert re.search(r"^dist\.barrier\(\)\ndist\.destroy_process_group\(\)$", text, re.M), path.name


@pytest.mark.parametrize("path", SNIPPETS, ids=lambda path: path.name)
def test_programs_are_short_enough_to_read(path):
    assert not too_much_to_read(path, 90, 130)
    lines = path.read_text().splitlines()
    assert "torchrun" in lines[0] + lines[2] or path.name == "one_process.py"
