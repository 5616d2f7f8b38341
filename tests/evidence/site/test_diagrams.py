"""Diagrams: drawn twice, said in words, in the page's colors; and each schedule is the one that the library runs."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from accelerate import infer_auto_device_map
from bs4 import BeautifulSoup
from built import ROOT
from small_site import block, render
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn.attention.flex_attention import create_block_mask
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.continuous_batching.requests import RequestState
from transformers.generation.continuous_batching.scheduler import FIFOScheduler
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from trl import GRPOConfig, GRPOTrainer

from dryrun.tables.formats import WEIGHT_BYTES
from dryrun.tables.hardware import ON_PAGES, accelerator
from evidence.site import diagrams
from evidence.site.diagrams import (
    accumulation,
    batching,
    bits,
    cache_pages,
    fsdp,
    grpo,
    layouts,
    loading,
    masks,
    memory_bandwidth,
    memory_steps,
    number_formats,
    offload,
    packing,
    picture_tokens,
    pipeline,
    ranks,
    ring,
    roofline,
    shards,
    slurm,
    speculative,
    tensor_parallel,
    three_ways,
    token_weights,
)
from evidence.site.diagrams.svg import LETTER, WIDTHS, decisions, timeline

DRAWN = {name: diagrams.draw(name) for name in diagrams.DIAGRAMS}


def svgs(name):
    return BeautifulSoup(DRAWN[name], "html.parser").select("svg")


@pytest.mark.parametrize("name", DRAWN)
def test_a_diagram_is_drawn_for_a_desktop_and_for_a_phone_with_words_for_who_cannot_see_it(name):
    assert [float(svg["viewbox"].split()[2]) for svg in svgs(name)] == list(WIDTHS)
    assert {svg["role"] for svg in svgs(name)} == {"img"}
    assert all(len(svg["aria-label"]) > 60 for svg in svgs(name))
    words = BeautifulSoup(DRAWN[name], "html.parser").select_one("details")
    assert words.summary.text == "In words" and len(words.text) > 60


@pytest.mark.parametrize("name", DRAWN)
def test_a_diagram_brings_no_style_script_color_or_id_of_its_own(name):
    assert not re.search(r"<style|<script|\sstyle=|\sid=|http|#[0-9a-fA-F]{3,6}", DRAWN[name])


@pytest.mark.parametrize("name", DRAWN)
def test_nothing_of_a_diagram_lies_outside_of_it(name):
    for svg in svgs(name):
        width, height = map(float, svg["viewbox"].split()[2:])
        for text in svg.select("text"):
            long, x = LETTER * len(text.text), float(text["x"])
            left = {"start": x, "middle": x - long / 2, "end": x - long}[text["class"][0]]
            assert left >= -8 and left + long <= width + 8, text.text
            assert 0 <= float(text["y"]) <= height, text.text
        for rect in svg.select("rect"):
            x, y, wide, high = (float(rect[key]) for key in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + wide <= width + 1 and y + high <= height + 1


@pytest.mark.parametrize("name", DRAWN)
def test_a_page_shows_the_diagram(name):
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert re.search(rf"```diagram\n\s*{name}\n", pages), f"no page shows the diagram {name}. Fix: show it, or delete it"


def test_a_label_that_does_not_fit_is_an_error_with_the_label():
    with pytest.raises(ValueError, match="'Donaudampfschifffahrt.*' does not fit into"):
        decisions("", "", ("Donaudampfschifffahrtselektrizitätenhauptbetriebswerk?", "Yes", "No"))


def test_an_unknown_diagram_is_named_with_the_nearest(problems_of):
    with pytest.raises(LookupError, match="no diagram 'fsdpp' .did you mean fsdp"):
        diagrams.draw("fsdpp")
    assert problems_of("```diagram\nfsdp\n```") == []
    (problem,) = problems_of("```diagram\nfsdpp\n```")
    assert problem.startswith("1: there is no diagram 'fsdpp' (did you mean fsdp?)")


def test_a_decision_tree_is_said_as_an_outline():
    tree = BeautifulSoup(decisions("T", "D", ("Fits?", "DDP", ("Parts?", "FSDP", "More GPUs"))), "html.parser")
    assert tree.select_one("details").text == "In wordsFits?Yes: DDPNo: Parts?Yes: FSDPNo: More GPUs"


def test_a_timeline_says_its_lanes_in_order_and_joins_blocks_of_a_kind():
    lanes = {"GPU": [(2, 1, "c", "Backward"), (0, 1, "a", "Forward"), (1, 1, "b", "Forward")]}
    row = BeautifulSoup(timeline("T", "D", lanes), "html.parser").select_one("details tr")
    assert [cell.text for cell in row] == ["GPU", "Forward a, b; Backward c"]


# From a record


TRACE = {
    "title": "A step",
    "kind": "measured",
    "columns": {"lane": "Lane", "start": "Start, ms", "length": "Length, ms", "label": "Name", "kind": "Kind"},
    "rows": [["Parts", 0.0, 2.5, "data", "Waits"], ["Parts", 2.5, 7.5, "forward", "Computes"]],
}
FENCE = block("timeline", table="tiny:trace", title="A step", description="First data, then forward.")


def test_a_timeline_of_a_record_has_its_lanes_its_end_and_its_caption(repository):
    repository.change_record(lambda data: data["tables"].update(trace=TRACE))
    figure = render(FENCE).select_one("figure.diagram")
    assert [item.text for item in figure.select(".legend li")] == ["Waits", "Computes"]
    wide = [rect for rect in figure.select_one("svg").select("rect") if rect["class"] != ["lane"]]
    assert float(wide[1]["width"]) == pytest.approx(3 * float(wide[0]["width"]), rel=0.01)
    assert "10 ms" in figure.select_one("svg").text
    assert "measured on Test CPU 2 cores: A step." in " ".join(figure.select_one(".evidence-caption").text.split())


def test_a_timeline_of_a_table_without_its_columns_is_named(problems_of):
    (problem,) = problems_of(FENCE.replace("tiny:trace", "tiny:by-batch"))
    assert problem.startswith("2: table tiny:by-batch has no column lane, which a timeline needs")


# Pipelines


@pytest.fixture
def fake_ranks():
    """Starts a process group of so many ranks that sends nothing."""
    yield lambda ranks: dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "name, mine", [("GPipe", pipeline.gpipe), ("1F1B", pipeline.one_forward_one_backward)], ids=["GPipe", "1F1B"]
)
def test_the_order_of_a_pipeline_is_that_of_pytorch(name, mine, fake_ranks):
    fake_ranks(pipeline.RANKS)
    stage = PipelineStage(torch.nn.Linear(1, 1), 0, pipeline.RANKS, torch.device("cpu"))
    schedule = get_schedule_class(name)(stage, n_microbatches=pipeline.BATCHES, loss_fn=torch.nn.functional.mse_loss)
    for rank, actions in schedule.pipeline_order.items():
        kinds = [action.computation_type.value for action in actions if action is not None]
        assert [kind for kind in kinds if kind in "FB"] == [way for way, _ in mine()[rank]]


@pytest.mark.parametrize("orders", [pipeline.gpipe, pipeline.one_forward_one_backward])
def test_the_bubble_of_a_pipeline_is_that_of_the_formula(orders):
    ranks, batches = pipeline.RANKS, pipeline.BATCHES
    end = max(start + pipeline.LENGTHS[way] for (_, way, _), start in pipeline.played(orders()).items())
    assert 1 - 3 * batches / end == pytest.approx((ranks - 1) / (batches + ranks - 1))


# FSDP2


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


def gathers_of_fsdp2(monkeypatch):
    """{(layer, way): the layer and way whose copied weights the stream of the gathers has waited for} of a real step."""
    found, names, state, waited = {}, {}, {"way": "Forward", "copied": None}, {}
    unshard, copy, wait = FSDPParamGroup.unshard, FSDPParamGroup.wait_for_unshard, torch.cpu.Stream.wait_event

    class Event(torch.cpu.Event):
        def __init__(self, *arguments, **keywords):
            super().__init__()
            self.of = state["copied"]

    def logged_unshard(group, async_op=False):
        pending = group._all_gather_result
        unshard(group, async_op)
        if pending is None and group._all_gather_result is not None:
            found[names[id(group.modules[0])], state["way"]] = waited.get(id(group.comm_ctx.all_gather_stream))

    def logged_copy(group):
        state["copied"] = names[id(group.modules[0])], state["way"]
        copy(group)

    def logged_wait(stream, event):
        waited[id(stream)] = getattr(event, "of", None)
        wait(stream, event)

    monkeypatch.setattr(FSDPParamGroup, "unshard", logged_unshard)
    monkeypatch.setattr(FSDPParamGroup, "wait_for_unshard", logged_copy)
    monkeypatch.setattr(torch.cpu.Stream, "wait_event", logged_wait)
    monkeypatch.setattr(torch.cpu, "Event", Event)
    layers = [Block() for _ in fsdp.LAYERS]
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), *layers, torch.nn.Linear(4, 4))
    names |= {id(layer): number for number, layer in enumerate(layers, 1)} | {id(model): "embedding"}
    mesh = dist.init_device_mesh("cpu", (2,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss = model(torch.ones(2, 4)).sum()
    state["way"] = "Backward"
    loss.backward()
    return found


def test_the_gathers_of_fsdp2_come_in_the_order_and_after_the_layers_of_the_diagram(fake_ranks, monkeypatch):
    fake_ranks(2)
    found = gathers_of_fsdp2(monkeypatch)
    assert list(found) == list(fsdp.gathers())
    assert found == fsdp.gathers()


def test_a_stream_of_fsdp_does_one_thing_at_a_time_and_no_layer_computes_before_its_weights_are_there():
    lanes = fsdp.lanes()
    for stream in (fsdp.COMPUTE, fsdp.GATHERS, fsdp.SCATTERS):
        ends = [start + length for start, length, *_ in lanes[stream]]
        assert all(later[0] >= end for end, later in zip(ends, lanes[stream][1:]))
    for layer in fsdp.LAYERS:
        computed = [block for block in lanes[fsdp.COMPUTE] if block[2] == str(layer)]
        gathered = [block for block in lanes[fsdp.GATHERS] if block[2] == str(layer)]
        assert len(computed) == len(gathered) == 2
        assert all(start >= arrives + length for (start, *_), (arrives, length, *_) in zip(computed, gathered))


# The others


def test_a_ring_adds_every_gradient_once_and_each_link_carries_what_the_formula_says():
    gradients = torch.randn(ring.GPUS, ring.GPUS, 8)  # GPU, part, values
    held = gradients.clone()
    for step, parts in enumerate(ring.sends()):
        after = held.clone()
        for gpu, part in enumerate(parts):
            to = (gpu + 1) % ring.GPUS
            after[to, part] = held[gpu, part] + (held[to, part] if step < ring.GPUS - 1 else 0)
        held = after
    assert all(torch.allclose(each, gradients.sum(0), atol=1e-5) for each in held)
    assert len(ring.sends()) / ring.GPUS == 2 * (ring.GPUS - 1) / ring.GPUS
    assert all(len(sources) == ring.GPUS for row in ring.played()[-1] for sources in row)


def test_packing_keeps_every_text_and_wastes_less():
    padded, packed = packing.padded(), packing.packed()
    for rows in (padded, packed):
        assert sorted(length for texts, _ in rows for length in texts) == sorted(packing.LENGTHS)
        assert all(sum(texts) + padding == packing.ROW for texts, padding in rows)
    plain, mixed = (sum(padding for _, padding in rows) / len(rows) for rows in (padded, packed))
    assert len(packed) == len(padded) / 2 and mixed < plain / 2


def test_the_cache_in_pages_holds_more_requests_than_with_room_reserved_for_each():
    reserved, paged = cache_pages.reserved(), cache_pages.paged()
    for requests in (reserved, paged):
        assert [written for written, _ in requests] == [*cache_pages.LENGTHS[: len(requests)]]
        taken = cache_pages.blocks(requests)
        assert [start for start, *_ in taken[1:]] == [start + length for start, length, *_ in taken[:-1]]  # no page of two requests
        assert sum(length for _, length, *_ in taken) == cache_pages.PAGES
    assert all(written + beyond == cache_pages.LONGEST for written, beyond in reserved)
    assert len(paged) > len(reserved)
    used = sum(written for written, _ in paged)
    assert used + cache_pages.LENGTHS[len(paged)] > cache_pages.PAGES  # the next request has to wait


def test_a_token_counts_in_a_step_as_its_gradient_does():
    tokens = [torch.ones(number, requires_grad=True) for number in token_weights.TOKENS]
    sum(batch.sum() / sum(token_weights.TOKENS) for batch in tokens).backward()
    assert [batch.grad.tolist() for batch in tokens] == [pytest.approx(weights) for weights in token_weights.by_all()]
    for batch in tokens:
        batch.grad = None
    torch.stack([batch.mean() for batch in tokens]).mean().backward()
    assert [batch.grad.tolist() for batch in tokens] == [pytest.approx(weights) for weights in token_weights.by_means()]


@pytest.mark.parametrize("ranks", shards.READ)
def test_ranks_read_of_a_sharded_checkpoint_what_dcp_would_plan(ranks):
    def chunk(first, last):
        return ChunkStorageMetadata(offsets=torch.Size([first]), sizes=torch.Size([last - first]))

    saved = TensorStorageMetadata(TensorProperties(), torch.Size([shards.ROWS]), [chunk(*each) for each in shards.bounds(shards.SAVED)])
    assert [last - first for first, last in shards.bounds(ranks)] == [len(part) for part in torch.arange(shards.ROWS).chunk(ranks)]
    planned = []
    for rank, each in enumerate(shards.bounds(ranks)):
        for item in create_read_items_for_chunk_list("weight", saved, [chunk(*each)]):
            first = item.storage_index.offset[0] + item.storage_offsets[0]
            planned.append((rank, item.storage_index.index, first, first + item.lengths[0]))
    assert planned == shards.pieces(ranks)


class NextNumber(LlamaForCausalLM):
    """Its next token is the number after the last one; 0 in place of those that it does not know."""

    unknown = ()
    calls = 0

    def forward(self, input_ids, **options):
        self.calls += 1
        found = super().forward(input_ids, **options)
        after = input_ids + 1
        for number in self.unknown:
            after = torch.where(after == number, 0, after)
        found.logits = torch.nn.functional.one_hot(after[:, -found.logits.shape[1] :], self.config.vocab_size).float()
        return found


def test_a_draft_saves_as_many_passes_as_assisted_generation_of_transformers():
    config = LlamaConfig(vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    large, draft = NextNumber(config).eval(), NextNumber(config).eval()
    draft.unknown = speculative.WRONG
    draft.generation_config.update(num_assistant_tokens=speculative.DRAFTED, num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0)
    options = {"do_sample": False, "max_new_tokens": speculative.TOKENS, "eos_token_id": None, "pad_token_id": 31}
    said = large.generate(torch.zeros(1, 1, dtype=torch.long), assistant_model=draft, **options)
    assert said.tolist() == [[*range(speculative.TOKENS + 1)]]
    assert large.calls == len(speculative.passes()) < speculative.TOKENS
    assert [last - first for first, last in speculative.passes()] == [3, 1, 2, 3]
    assert sum(length for _, length, *_ in speculative.with_draft()) < speculative.TOKENS / 2


def test_gradients_of_an_accumulated_step_stay_from_the_first_backward_pass_to_the_optimizer():
    weight, there = torch.ones(2, requires_grad=True), []
    optimizer = torch.optim.SGD([weight], lr=1)
    for _ in range(accumulation.MICRO_BATCHES):
        loss = weight.sum()
        there.append(weight.grad is not None)
        loss.backward()
    optimizer.step()
    there.append(weight.grad is not None)
    lanes = accumulation.lanes()
    ((start, length, *_),) = lanes["Gradients"]
    drawn = [start <= begins for begins, _, _, kind in lanes["Runs"] if kind == "Forward"]
    assert drawn + [lanes["Runs"][-1][0] < start + length] == there


def test_a_block_split_as_drawn_gives_the_whole_product_by_one_sum():
    x, up, down = torch.randn(3, 8), torch.randn(8, 16), torch.randn(16, 8)
    total = torch.zeros(3, 8)
    for gpu in range(tensor_parallel.GPUS):
        of = {name: mine for name, _, _, mine in tensor_parallel.parts(gpu) if mine}
        left, _, share, _ = of["up_proj"]
        _, above, _, down_share = of["down_proj"]
        columns = slice(int(left * 16), int((left + share) * 16))
        rows = slice(int(above * 16), int((above + down_share) * 16))
        total += torch.relu(x @ up[:, columns]) @ down[rows]
    assert torch.allclose(total, torch.relu(x @ up) @ down, atol=1e-4)
    plan = LlamaConfig.base_model_tp_plan
    words = {"colwise": "columns", "rowwise": "rows"}
    for name, split in tensor_parallel.SPLIT.items():
        assert words[plan[f"layers.*.mlp.{name}"]] == split


def test_layers_in_turn_are_visited_by_real_generation_in_the_order_of_the_drawing(monkeypatch):
    """The map is that of Accelerate for four GPUs of one size; the order, that in which `generate` calls the layers."""
    layers = 8
    shape = dict(vocab_size=16, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=layers)
    model = LlamaForCausalLM(LlamaConfig(**shape, eos_token_id=None, bos_token_id=None)).eval()
    size = sum(weight.nbytes for weight in model.model.layers[0].parameters())
    room = dict.fromkeys(range(three_ways.GPUS), round(2.7 * size))
    room[0] = round(3.2 * size)  # Accelerate leaves room for a layer there
    monkeypatch.setattr("accelerate.utils.modeling.get_max_memory", dict)  # it asks whether the GPUs are there
    places = infer_auto_device_map(model, max_memory=room, no_split_module_classes=["LlamaDecoderLayer"])
    gpus = [places[f"model.layers.{number}"] for number in range(layers)]
    assert gpus == sorted(gpus) and set(gpus) == set(range(three_ways.GPUS))
    visited = []
    for layer, gpu in zip(model.model.layers, gpus):
        layer.register_forward_pre_hook(lambda *_, gpu=gpu: visited.append(gpu))
    model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=2, do_sample=False)
    turns = [gpu for gpu, before in zip(visited, [None, *visited]) if gpu != before]
    lanes = three_ways.in_turn()
    drawn = sorted((start, gpu) for gpu, blocks in lanes.items() for start, *_ in blocks)
    assert turns == [gpu for _, gpu in drawn]
    assert [three_ways.layers(gpu) for gpu in range(4)] == [(1, 20), (21, 40), (41, 60), (61, 80)]


def test_three_ways_take_the_same_time_and_make_the_tokens_that_their_work_allows():
    ways = three_ways.ways()
    for _, lanes, _ in ways:
        for blocks in lanes.values():
            ends = [start + length for start, length, *_ in blocks]
            assert all(later[0] >= end for end, later in zip(ends, blocks[1:]))
            assert ends[-1] <= three_ways.END + 1e-9
    turn, split, copies = (three_ways.tokens(lanes, apart) for _, lanes, apart in ways)
    one = three_ways.END / three_ways.GPUS  # tokens that one GPU makes alone, were it large enough
    assert turn == one
    assert split == three_ways.END // (1 + three_ways.SUMS) and one < split < three_ways.GPUS * one
    assert copies == three_ways.GPUS * one


@pytest.mark.parametrize("name", roofline.GPUS)
def test_the_roofline_is_that_of_the_data_sheet_and_its_ridge_is_where_both_limits_meet(name):
    gpu = accelerator(name)
    assert roofline.reached(gpu, 10**6) == gpu.half
    assert roofline.reached(gpu, 1) == pytest.approx(gpu["bandwidth"].value / 1000)  # one FLOP for each byte
    assert roofline.bandwidth(gpu) * roofline.intensity(roofline.ridge(gpu)) == pytest.approx(gpu.half)


def test_the_roofline_shows_one_gpu_and_has_all_that_the_header_offers():
    for svg in svgs("roofline"):
        roofs = svg.select("g[data-for]")
        assert [roof["data-for"] for roof in roofs] == list(ON_PAGES)
        assert [roof["data-for"] for roof in roofs if not roof.has_attr("hidden")] == [ON_PAGES[0]]
        assert all(f"{accelerator(roof['data-for']).half:,.0f} TFLOP/s" in roof.text for roof in roofs)


# Batches and ranks


class RoomyCache:
    """What the scheduler of transformers asks of a cache, and that has room for all."""

    use_prefix_sharing, max_blocks_per_request, max_decode_fast_path_length, read_cache_limit = False, 0, 0, None
    pool = SimpleNamespace(try_to_free_sectors=lambda: None)

    def compute_free_capacity(self):
        return 1.0

    def can_store_request_tokens(self, state, tokens):
        return True

    def count_new_complete_blocks(self, state, tokens):
        return 0

    def free_blocks(self, name):
        pass


def test_continuous_batching_is_drawn_as_the_scheduler_of_transformers_schedules_it():
    scheduler = FIFOScheduler(RoomyCache(), 0.0, batching.BATCH)
    for name, (prompt, answer) in batching.REQUESTS.items():
        scheduler.add_waiting_request(RequestState(name, [0] * prompt, max_new_tokens=answer))
    passes = []
    while scheduler.has_pending_requests():
        scheduled, *_ = scheduler.schedule_batch(batching.BUDGET, 1_000_000)
        passes.append({future.state.request_id: future.query_length for future in scheduled})
        for future in scheduled:
            if future.has_new_token and future.state.update_and_check_completion(0, None):
                scheduler.finish_request(future.state.request_id)
    assert passes == batching.continuous()


@pytest.mark.parametrize("passes", [batching.fixed(), batching.continuous()])
def test_every_request_reads_its_prompt_and_writes_its_answer_once(passes):
    for name, blocks in batching.lanes(passes).items():
        prompt, answer = batching.REQUESTS[name]
        assert sum(int(tokens) for *_, tokens, kind in blocks if kind == batching.PROMPT) == prompt
        assert sum(kind == batching.ANSWER for *_, kind in blocks) == answer - 1  # the pass that ends a prompt gives the first


@pytest.mark.parametrize("passes", [batching.fixed(), batching.continuous()])
def test_what_a_step_says_of_a_pass_is_what_is_drawn_in_it(passes):
    steps = batching.steps(passes)
    blocks = batching.lanes(passes)
    assert [end for end, _ in steps] == list(range(1, len(passes) + 1))
    for number, (_, text) in enumerate(steps):
        drawn = {name: kind for name, lane in blocks.items() for start, *_, kind in lane if start == number}
        assert int(re.search(r": (\d+) token", text)[1]) == sum(passes[number].values())
        of = {batching.PROMPT: "read", batching.ANSWER: "write", batching.WASTED: "computed on"}
        for kind, verb in of.items():
            said = set("".join(re.findall(rf"([^.:]*?)(?:{verb}|(?:is|are) done, and {verb})", text)))
            assert {name for name, seen in drawn.items() if seen == kind} == said & set(drawn), text


@pytest.mark.parametrize("orders, most", [(pipeline.gpipe, pipeline.BATCHES), (pipeline.one_forward_one_backward, pipeline.RANKS)])
def test_the_steps_of_a_pipeline_say_how_many_micro_batches_a_gpu_holds(orders, most):
    steps = pipeline.steps(orders())
    ends = [end for end, _ in steps]
    assert ends == sorted(set(ends)) and ends[-1] == 3 * (pipeline.RANKS + pipeline.BATCHES - 1)
    assert max(int(re.search(r"GPU 0: (\d+)", text)[1]) for _, text in steps) == most
    assert re.search("GPU 1, 2 and 3 wait.*GPU 0: 1, GPU 1: 0", steps[0][1]) and "GPU 0: 0" not in steps[-1][1]


def test_a_fixed_batch_ends_with_its_longest_answer_as_generate_does():
    """generate with random weights, which writes no end: a row ends by a stopping criterion of its own."""
    first = [batching.REQUESTS[name][1] for name in list(batching.REQUESTS)[: batching.BATCH]]
    shape = dict(vocab_size=16, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1)
    model = LlamaForCausalLM(LlamaConfig(**shape, eos_token_id=None, bos_token_id=None, pad_token_id=0)).eval()
    calls = []
    model.model.register_forward_pre_hook(lambda *_: calls.append(1))

    def done(ids, scores, **_):
        return torch.tensor([ids.shape[1] - 4 >= answer for answer in first])

    model.generate(torch.ones(batching.BATCH, 4, dtype=int), max_new_tokens=50, do_sample=False, stopping_criteria=[done])
    assert len(calls) == max(first) == [set(batch) for batch in batching.fixed()].count({"A", "B", "C"})


@pytest.mark.parametrize("name, dtype", [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16),
                                         ("fp8 E5M2", torch.float8_e5m2), ("fp8 E4M3", torch.float8_e4m3fn)])  # fmt: skip
def test_the_drawn_formats_have_the_range_and_the_digits_that_torch_says(name, dtype):
    limits = torch.finfo(dtype)
    assert (number_formats.largest(name), number_formats.smallest(name)) == (limits.max, limits.smallest_normal)
    assert 2.0 ** -number_formats.FORMATS[name][1] == limits.eps and 1 + sum(number_formats.FORMATS[name]) == limits.bits


class Traced(torch.utils.data.Dataset):
    """Leaves a file for each item that a worker has made."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return loading.BATCHES

    def __getitem__(self, item):
        (self.folder / f"{item}-{torch.utils.data.get_worker_info().id}").touch()
        return item


def test_workers_are_asked_for_batches_as_the_data_loader_of_torch_asks_them(tmp_path):
    loader = torch.utils.data.DataLoader(Traced(tmp_path), num_workers=loading.WORKERS)
    assert loader.prefetch_factor == loading.AHEAD
    batches = iter(loader)

    def made():
        before = -1
        while before != (before := len(list(tmp_path.iterdir()))):
            time.sleep(0.5)
        return before

    assert made() == loading.WORKERS * loading.AHEAD, "what is made before the first batch is taken"
    next(batches)
    assert made() == loading.WORKERS * loading.AHEAD + 1, "each that is taken asks for one more"
    assert len(list(batches)) == loading.BATCHES - 1
    drawn = {f"{number}-{worker[-1]}" for worker, blocks in loading.played(loading.WORKERS).items() if worker != "GPU" for *_, number in blocks}
    assert {path.name for path in tmp_path.iterdir()} == drawn


def test_with_workers_enough_only_the_first_batch_is_waited_for():
    assert loading.end(loading.played(2)) == loading.MAKING + loading.BATCHES * loading.STEP
    assert loading.end(loading.played(1)) == loading.BATCHES * loading.MAKING + loading.STEP, "one is too few: it decides"
    assert loading.end(loading.alone()) == loading.BATCHES * (loading.MAKING + loading.STEP)


def test_ranks_are_numbered_as_torchrun_numbers_them():
    store, found = dist.HashStore(), {}

    def node(number):
        spec = SimpleNamespace(role="default", local_world_size=ranks.GPUS)
        found[number] = SimpleElasticAgent._assign_worker_ranks(SimpleNamespace(), store, number, ranks.NODES, spec)

    with ThreadPoolExecutor() as pool:
        list(pool.map(node, reversed(range(ranks.NODES))))
    numbered = [
        (worker.global_rank, worker.local_rank, number, worker.world_size)
        for number in range(ranks.NODES)
        for worker in found[number]
    ]
    drawn = [(one["RANK"], one["LOCAL_RANK"], one["GROUP_RANK"], one["WORLD_SIZE"]) for one in ranks.ranks()]
    assert numbered == drawn


def test_all_accelerators_lie_inside_the_axes_and_no_name_lies_on_another():
    for svg in svgs("memory-bandwidth"):
        marks, names = svg.select("rect"), [text for text in svg.select("text") if text.text in {name for name, _ in memory_bandwidth.NAMED.values()}]
        assert len(marks) == len(memory_bandwidth.shown()) > 100
        width, height = (float(side) for side in svg["viewbox"].split()[2:])
        assert all(46 <= float(mark["x"]) + 4 <= width - 12 and 18 <= float(mark["y"]) + 4 <= height - 38 for mark in marks)
        places = []
        for text in names:
            long, x = LETTER * len(text.text), float(text["x"])
            left = {"start": x, "middle": x - long / 2, "end": x - long}[text["class"][0]]
            places.append((left, left + long, float(text["y"])))
        assert len(places) == (len(memory_bandwidth.NAMED) if width > 400 else len(memory_bandwidth.ON_A_PHONE))
        for number, (left, right, y) in enumerate(places):
            assert 0 <= left < right <= width
            assert not [other for other in places[number + 1 :] if left < other[1] and other[0] < right and abs(y - other[2]) < 12]


def lasts(blocks, *kinds):
    return {(kind, label): (start, start + length) for start, length, label, kind in blocks if kind in kinds}


def test_an_input_is_on_the_host_after_its_layer_began_and_back_before_its_backward_pass():
    gpu, link = offload.two_streams()
    forward, backward = lasts(gpu, offload.FORWARDS), lasts(gpu, offload.BACKWARDS)
    for layer in map(str, range(offload.LAYERS)):
        assert lasts(link, offload.TO_HOST)[offload.TO_HOST, layer][0] >= forward[offload.FORWARDS, layer][0]
        assert lasts(link, offload.TO_GPU)[offload.TO_GPU, layer][1] <= backward[offload.BACKWARDS, layer][0]
    for lane in (gpu, link, offload.one_stream()):
        ends = [(start, start + length) for start, length, *_ in sorted(lane)]
        assert all(before[1] <= after[0] for before, after in zip(ends, ends[1:]))
    computed = sum(length for _, length, _, kind in offload.one_stream() if kind in (offload.FORWARDS, offload.BACKWARDS))
    copied = sum(length for _, length, _, kind in link)
    assert offload.end(offload.one_stream()) == computed + copied
    assert offload.end(gpu) < offload.end(offload.one_stream())


def test_the_gpu_waits_for_an_optimizer_on_the_host_once_for_each_step():
    for count in (1, 4):
        lanes = offload.step(count)
        (waiting,) = lasts(lanes["GPU"], offload.WAITS).values()
        (update,) = lasts(lanes["CPU"], offload.UPDATES).values()
        (weights,) = (block for key, block in lasts(lanes["Link"], offload.TO_GPU).items() if not key[1])
        assert waiting == (update[0], weights[1]) and update[1] == weights[0]
        sent = lasts(lanes["Link"], offload.TO_HOST)
        assert len(sent) == count and max(end for _, end in sent.values()) <= update[0]


def test_the_bits_of_a_weight_are_those_that_dryrun_counts():
    for name in bits.FORMATS:
        assert sum(bits.bits(name)) == pytest.approx(8 * WEIGHT_BYTES[name]), name


def test_blocks_of_a_mask_are_those_of_flex_attention():
    texts = torch.tensor([masks.text_of(token) for token in range(masks.LENGTH)])
    rules = {
        "Causal": lambda row, head, query, key: query >= key,
        f"Window of {masks.WINDOW}": lambda row, head, query, key: (query >= key) & (query - key < masks.WINDOW),
        f"{len(masks.TEXTS)} packed texts": lambda row, head, query, key: (query >= key) & (texts[query] == texts[key]),
    }
    assert list(rules) == list(masks.RULES) and sum(masks.TEXTS) == masks.LENGTH
    for name, rule in rules.items():
        made = create_block_mask(rule, None, None, masks.LENGTH, masks.LENGTH, device="cpu", BLOCK_SIZE=masks.BLOCK)
        for row, kinds in enumerate(masks.blocks(masks.RULES[name])):
            for kind, counts, places in (
                (masks.PART, made.kv_num_blocks, made.kv_indices),
                (masks.FULL, made.full_kv_num_blocks, made.full_kv_indices),
            ):
                count = counts[0, 0, row]
                assert {at for at, drawn in enumerate(kinds) if drawn == kind} == set(places[0, 0, row, :count].tolist()), (name, row)


@pytest.mark.parametrize("way, steps", grpo.WAYS.items())
def test_answers_are_written_and_learned_from_as_trl_does(way, steps, tmp_path):
    """The default of steps_per_generation is the accumulation."""
    given = {} if steps == grpo.ACCUMULATION else {"steps_per_generation": steps}
    args = GRPOConfig(
        tmp_path,
        per_device_train_batch_size=grpo.PER_DEVICE,
        gradient_accumulation_steps=grpo.ACCUMULATION,
        num_generations=grpo.GENERATIONS,
        use_cpu=True,
        **given,
    )
    found = []

    def write(answers):
        found.append((grpo.WRITES, len(answers["ids"])))
        return answers

    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True), args=args, num_iterations=1, _buffered_inputs=None, _generate_and_score_completions=write
    )
    for trainer._step in range(grpo.ACCUMULATION):
        written = {"ids": torch.zeros(args.generation_batch_size, 2)}
        found.append((grpo.LEARNS, len(GRPOTrainer._prepare_inputs.__wrapped__(trainer, written)["ids"])))
    assert [*found, (grpo.UPDATES, 0)] == grpo.calls(steps)


def test_memory_over_the_steps_has_the_shape_that_its_name_says():
    steady, grows, jumps, pieces = memory_steps.runs().values()
    assert len(set(steady)) == 1
    more = {after[0] - before[0] for before, after in zip(grows, grows[1:])}
    assert more == {memory_steps.KEPT}, "each step keeps as much as the one before"
    at = max(range(len(jumps)), key=lambda step: jumps[step][0])
    assert 0 < at < len(jumps) - 1 and jumps[-1][0] == jumps[0][0] and jumps[-1][1] == jumps[at][1] > jumps[0][1]
    assert pieces[-1][1] > 1.5 * max(allocated for allocated, _ in pieces), "reserved in pieces that fit no batch"


def test_a_job_of_slurm_is_drawn_as_its_file_asks():
    job = (ROOT / "snippets/launching/slurm.sbatch").read_text()
    assert re.search(r"--nodes=(\d+)", job)[1] == str(slurm.NODES)
    assert re.search(r"--gpus-per-node=(\d+)", job)[1] == str(slurm.GPUS)
    assert re.search(r"--ntasks-per-node=(\d+)", job)[1] == "1", "one torchrun for each node"


@pytest.mark.parametrize("sizes", layouts.LAYOUTS.values())
def test_parallel_layouts_are_numbered_as_the_device_mesh_of_torch(sizes, fake_ranks):
    fake_ranks(layouts.NODES * layouts.GPUS)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data", "pipeline", "tensor"))
    assert [tuple((mesh.mesh == rank).nonzero()[0].tolist()) for rank in range(mesh.size())] == layouts.ranks(*sizes)


@pytest.mark.parametrize("limit", picture_tokens.LIMITS.values())
def test_a_picture_has_the_tokens_that_the_processor_gives_it(limit):
    side = picture_tokens.SIDE
    high, wide = smart_resize(picture_tokens.HEIGHT, picture_tokens.WIDTH, factor=side, max_pixels=limit)
    assert picture_tokens.tokens(limit) == high * wide // side**2
