"""docs/training/throughput.md, docs/training/data-loading.md and docs/training/padding-and-packing.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import functools
import inspect
import logging
import re
import subprocess
import sys
import types
import warnings

import datasets
import pytest
import torch
import trl
from programs import load, run, shown_message
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError
from torch.utils.data import DataLoader
from transformers import (
    BartConfig,
    BertConfig,
    BertModel,
    BloomConfig,
    BloomModel,
    DataCollatorWithFlattening,
    DistilBertConfig,
    DistilBertModel,
    FalconConfig,
    FalconModel,
    GPT2Config,
    GPT2Model,
    Lfm2Config,
    Lfm2Model,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    ModernBertConfig,
    ModernBertModel,
    MptConfig,
    MptModel,
    OPTConfig,
    OPTModel,
    Qwen3_5TextConfig,
    Qwen3_5TextModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
    masking_utils,
    modeling_flash_attention_utils,
    modeling_utils,
    set_seed,
    training_args,
)
from transformers.models.bart.modeling_bart import BartDecoder
from transformers.trainer_pt_utils import LengthGroupedSampler, get_length_grouped_indices
from trl.trainer import sft_trainer

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)
SEQUENCES = [torch.arange(length).mul(7).remainder(500).tolist() for length in (5, 40, 17)]


def error(name):
    kind, _, message = shown_message("throughput", name).partition(": ")
    return kind, message


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value)


def warned(call, *args, **kwargs):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [(warning.category.__name__, str(warning.message)) for warning in caught]


def llama(**other):
    set_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL | other)).eval()


def flattened(**options):
    return DataCollatorWithFlattening(return_tensors="pt", **options)([{"input_ids": ids} for ids in SEQUENCES])


@torch.no_grad()
def loss(model, **batch):
    return model(**batch).loss.item()


@torch.no_grad()
def loss_alone(model):
    """Mean over all predicted tokens of the sequences, each run on its own."""
    total = sum(loss(model, input_ids=(x := torch.tensor([ids])), labels=x) * (len(ids) - 1) for ids in SEQUENCES)
    return total / sum(len(ids) - 1 for ids in SEQUENCES)


def padded():
    width = max(map(len, SEQUENCES))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in SEQUENCES])
    real = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in SEQUENCES])
    return {"input_ids": ids, "attention_mask": real, "labels": ids.masked_fill(real == 0, -100)}


# torch.compile


def test_a_loop_compiled_with_accelerate_and_in_plain_pytorch_is_the_same_training():
    *losses, text, compiled = run("throughput/compile_accelerate.py").stdout.split()
    assert (len(losses), text, compiled) == (4, "compiled:", "True")
    *in_plain_pytorch, text, compiled = run("throughput/compile_pytorch.py").stdout.split()
    assert (text, compiled) == ("compiled:", "True")
    assert [*map(float, in_plain_pytorch)] == pytest.approx([*map(float, losses)], abs=2e-4)


def test_by_default_the_length_becomes_dynamic_and_two_graphs_serve_all_lengths():
    assert run("throughput/count_graphs.py").stdout.splitlines()[-3:] == [
        "default: 2",
        "dynamic=False, padded to 64: 3",
        "graph breaks: 0",
    ]


def test_dynamic_false_hits_the_limit_of_8_says_so_and_goes_on_in_eager_mode(caplog):
    assert torch._dynamo.config.recompile_limit == 8
    torch._dynamo.reset()
    squared = torch.compile(lambda x: x * x, backend="eager", dynamic=False)
    with caplog.at_level(logging.WARNING, logger="torch._dynamo"):
        logging.getLogger("torch._dynamo").addHandler(caplog.handler)
        results = [squared(torch.full((length,), 3.0)).sum().item() for length in range(2, 14)]
        logging.getLogger("torch._dynamo").removeHandler(caplog.handler)
    assert results == [9.0 * length for length in range(2, 14)]
    assert shown_message("throughput", "recompile_limit") in caplog.text


def test_a_length_that_is_marked_in_every_tensor_needs_one_graph():
    assert run("throughput/mark_dynamic.py").stdout.endswith("graphs: 1\n")


def test_a_length_that_is_marked_in_one_tensor_alone_is_an_error():
    torch._dynamo.reset()
    ids = torch.ones(4, 30, dtype=torch.long)
    torch._dynamo.mark_dynamic(ids, 1)
    compiled = torch.compile(llama(num_hidden_layers=1), backend="eager")
    with pytest.raises(ConstraintViolationError):
        compiled(input_ids=ids, labels=ids.clone(), use_cache=False)


@pytest.mark.parametrize("given, set_to", [({}, [True]), ({"fp16": True}, []), ({"tf32": False}, [False])], ids=str)
def test_torch_compile_turns_tf32_on_unless_fp16_or_tf32_says_otherwise(given, set_to, monkeypatch):
    calls = []
    monkeypatch.setattr(training_args, "is_torch_tf32_available", lambda: True)
    monkeypatch.setattr(training_args, "enable_tf32", calls.append)
    TrainingArguments("out", use_cpu=True, torch_compile=True, **given)
    assert calls == set_to


def test_a_machine_without_a_compiler_is_told_so():
    import torch._inductor.config as inductor

    kind, message = error("no_compiler")
    torch._dynamo.reset()
    with (
        inductor.patch({"cpp.cxx": (None, "no-such-compiler"), "compile_threads": 1, "force_disable_caches": True}),
        pytest.raises(Exception) as caught,
    ):
        torch.compile(lambda x: torch.relu(x) + 1)(torch.ones(8))
    assert type(caught.value).__name__ == kind
    assert str(caught.value).startswith(message)


def test_a_backend_or_a_mode_turns_compiling_on():
    assert TrainingArguments("out", use_cpu=True, torch_compile_mode="max-autotune").torch_compile
    arguments = TrainingArguments("out", use_cpu=True, torch_compile_backend="inductor")
    assert arguments.torch_compile
    assert TrainingArguments("out", use_cpu=True, torch_compile=True).torch_compile_backend == "inductor"


def test_the_modes_and_backends_of_the_page_exist_and_the_old_ones_are_gone():
    assert {"default", "reduce-overhead", "max-autotune"} <= set(torch._inductor.list_mode_options())
    assert not {"ipex", "nvfuser", "ofi", "fx2trt"} & set(torch._dynamo.list_backends())


@pytest.mark.parametrize("log", ["recompiles", "graph_breaks"])
def test_torch_logs_knows_the_names_of_the_page(log):
    assert log in torch._logging._internal.log_registry.artifact_names


# Data loading


def test_the_program_prints_the_share_of_waiting_without_workers_and_with_them():
    printed = run("throughput/waiting_share.py").stdout
    shares = re.findall(r"^(\d) workers: (\d+)% of the time is waiting$", printed, re.M)
    assert [workers for workers, _ in shares] == ["0", "4"]
    assert int(shares[0][1]) > 0


def test_prefetching_needs_workers():
    assert raised(TrainingArguments, "out", use_cpu=True, dataloader_prefetch_factor=2) == error("prefetch_factor")


def test_a_worker_holds_two_batches_ready_if_not_told_otherwise():
    assert DataLoader(range(4), num_workers=1).prefetch_factor == 2


def test_pinning_is_on_by_default_and_trainer_turns_it_off_on_a_cpu():
    assert TrainingArguments.__dataclass_fields__["dataloader_pin_memory"].default is True
    assert TrainingArguments("out", use_cpu=True).dataloader_pin_memory is False


def test_trainer_copies_without_waiting_if_told_so():
    arguments = TrainingArguments("out", use_cpu=True, accelerator_config={"non_blocking": True})
    assert Trainer(model=llama(), args=arguments).accelerator.non_blocking


@pytest.mark.skipif(torch.accelerator.is_available(), reason="2026-11-20: the warning is that of a machine without one")
def test_pinning_without_an_accelerator_warns():
    assert error("pin_memory") in warned(lambda: list(DataLoader(range(4), pin_memory=True)))


# Tokenizing


@functools.cache
def tokenized():
    return load("throughput/tokenise.py")


def test_the_file_of_ids_holds_every_text_and_its_rows_train_a_model():
    made = tokenized()
    rows, texts, tokenizer = made.rows, made.texts, made.tokenizer
    printed = run("throughput/tokenise.py").stdout
    assert re.search(rf"^{len(texts):,} texts, [\d,]+ tokens, [\d,]+ rows of 128$", printed, re.M)
    assert tokenizer.decode(rows.ids.tolist()).split("<end>")[:-1] == texts
    assert rows[3]["input_ids"].tolist() == rows.ids[3 * 128 : 4 * 128].tolist()
    assert len(rows) == len(rows.ids) // 128
    row = {name: ids[None] for name, ids in rows[0].items()}
    assert loss(llama(vocab_size=tokenizer.vocab_size), **row) > 0


def test_the_positions_of_a_row_start_again_after_each_text_and_keep_the_texts_apart():
    made = tokenized()
    rows, end = made.rows, made.END
    number = next(n for n in range(len(rows)) if end in rows[n]["input_ids"][8:-8])
    row = rows[number]
    border = row["input_ids"].tolist().index(end, 8) + 1
    assert row["position_ids"][[0, border - 1, border, border + 1]].tolist() == [0, border - 1, 0, 1]
    assert row["labels"][[0, border]].tolist() == [-100, -100]
    assert row["labels"][1] == row["input_ids"][1]
    model = llama(vocab_size=made.tokenizer.vocab_size)
    batch, other = (default_data_collator([row]) for _ in range(2))
    other["input_ids"] = other["input_ids"].clone()
    other["input_ids"][0, : border - 1] = 7
    with torch.no_grad():
        logits, changed = (model(**x, use_cache=False).logits[0] for x in (batch, other))
    assert not torch.equal(logits[:border], changed[:border])
    assert torch.equal(logits[border:], changed[border:])


# Padding, grouping, padding-free


def test_rows_of_different_length_need_a_collator_that_pads():
    rows = [{"input_ids": [1, 2, 3]}, {"input_ids": [1, 2, 3, 4, 5]}]
    assert raised(default_data_collator, rows) == error("uneven_rows")


def test_group_by_length_is_no_argument_any_more():
    assert raised(TrainingArguments, "out", group_by_length=True) == error("group_by_length")


@pytest.mark.parametrize("kept", [True, False])
def test_a_column_of_lengths_is_used_only_if_unused_columns_stay(kept, tmp_path, monkeypatch):
    given = []

    class Seen(LengthGroupedSampler):
        def __init__(self, *args, lengths=None, **options):
            given.append(lengths and list(lengths))
            super().__init__(*args, lengths=lengths, **options)

    monkeypatch.setattr("transformers.trainer.LengthGroupedSampler", Seen)
    rows = datasets.Dataset.from_dict({"input_ids": [[1]] * 4, "labels": [[1]] * 4, "length": [4, 3, 2, 1]})
    arguments = TrainingArguments(
        str(tmp_path), use_cpu=True, train_sampling_strategy="group_by_length", remove_unused_columns=not kept
    )
    Trainer(llama(), arguments, train_dataset=rows).get_train_dataloader()
    assert given == [[4, 3, 2, 1] if kept else None]


@pytest.mark.parametrize("rows", [[[5, 6, 7], [8, 9]], [[5, 6, 7, 8, 9]]], ids=["padding-free", "packed"])
def test_the_collator_of_sft_trainer_sends_positions_and_borders_and_no_mask(rows):
    examples = [{"input_ids": row} | ({"seq_lengths": [3, 2]} if len(rows) == 1 else {}) for row in rows]
    batch = sft_trainer.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)(examples)
    assert "attention_mask" not in batch and batch["cu_seq_lens_q"].tolist() == [0, 3, 5]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1]]


def test_group_by_length_is_a_sampling_strategy_and_needs_the_lengths():
    arguments = TrainingArguments("out", use_cpu=True, train_sampling_strategy="group_by_length")
    rows = [{"input_ids": list(range(length)), "labels": [0]} for length in (3, 9, 4)]
    sampler = Trainer(model=llama(), args=arguments, train_dataset=rows)._get_train_sampler()
    assert sampler.lengths == [3, 9, 4]
    assert raised(LengthGroupedSampler, 2, dataset=[{"text": "no ids"}]) == error("infer_lengths")


def test_an_iterable_dataset_is_not_grouped_and_only_a_line_of_level_info_says_so(monkeypatch):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield {"input_ids": [1, 2], "labels": [1, 2]}

    said = []
    monkeypatch.setattr("transformers.trainer.logger.info", lambda text, *more: said.append(text))
    arguments = TrainingArguments("out", use_cpu=True, max_steps=1, train_sampling_strategy="group_by_length")
    assert not warned(Trainer, model=llama(), args=arguments, train_dataset=Stream())
    assert [line for line in said if "option is ignored when using an `IterableDataset`" in line]


def test_the_batch_with_the_longest_row_comes_first():
    lengths = torch.randint(1, 500, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    assert lengths[get_length_grouped_indices(lengths, 8)[0]] == max(lengths)


def test_the_flattened_batch_has_positions_that_start_again_and_no_mask():
    row = flattened()
    assert set(row) == {"input_ids", "labels", "position_ids"}
    assert row["position_ids"][0].tolist() == [*range(5), *range(40), *range(17)]
    assert row["labels"][0, [0, 5, 45]].tolist() == [-100, -100, -100]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_free_gives_the_loss_of_the_padded_batch_and_of_the_sequences_alone(attention):
    model = llama(attn_implementation=attention)
    alone = loss_alone(model)
    assert loss(model, **padded()) == pytest.approx(alone, rel=1e-5)
    assert loss(model, **flattened(), use_cache=False) == pytest.approx(alone, rel=1e-5)


def test_flex_attention_isolates_by_the_same_positions():
    """Without code generation, of which the mask knows nothing: half a minute of the C++ compiler."""
    model, alone = llama(attn_implementation="flex_attention"), loss_alone(llama())
    with torch.compiler.set_stance("force_eager"):
        assert loss(model, **flattened(), use_cache=False) == pytest.approx(alone, rel=1e-5)
        assert abs(loss(model, **flattened(), use_cache=True) - alone) > 1e-4


def test_gradients_are_the_same_too():
    def gradients(batch):
        model = llama().train()
        model(**batch, use_cache=False).loss.backward()
        return [parameter.grad for parameter in model.parameters()]

    pairs = list(zip(gradients(padded()), gradients(flattened())))
    assert len(pairs) > 10
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)


@pytest.mark.parametrize(
    "more", [{"use_cache": True}, {"attention_mask": torch.ones(1, 62, dtype=torch.long)}], ids=["cache", "mask"]
)
def test_a_cache_or_an_attention_mask_switches_the_isolation_off_without_a_word(more, recwarn):
    model = llama()
    assert abs(loss(model, **flattened(), **more) - loss_alone(model)) > 1e-4
    assert not [warning for warning in recwarn if "pack" in str(warning.message).lower()]


def test_positions_may_start_elsewhere():
    assert flattened(position_ids_start=2)["position_ids"][0, [0, 5]].tolist() == [2, 2]


def test_the_collator_gives_the_borders_that_flash_attention_takes():
    assert flattened(return_flash_attn_kwargs=True)["cu_seq_lens_q"].flatten().tolist() == [0, 5, 45, 62]


def test_without_position_ids_the_sequences_leak():
    model, row = llama(), flattened(return_position_ids=False)
    assert abs(loss(model, **row, use_cache=False) - loss_alone(model)) > 1e-4


def test_trainer_switches_the_cache_off():
    assert TrainingArguments("out", use_cpu=True).use_cache is False
    model = llama()
    assert model.config.use_cache
    Trainer(model=model, args=TrainingArguments("out", use_cpu=True))
    assert not model.config.use_cache


def test_the_isolation_check_of_the_page_says_who_leaks():
    lines = run("throughput/isolation_check.py").stdout.splitlines()[-4:]
    assert [line.split()[-1] for line in lines] == ["isolated", "leaks", "leaks", "leaks"]
    assert lines[-1].startswith("BERT")


TINY = dict(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
DISTIL = dict(vocab_size=100, dim=32, hidden_dim=64, n_layers=2, n_heads=2)
BART = dict(vocab_size=100, d_model=32, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=64)
OPT = dict(
    vocab_size=100, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=2
)
FALCON = dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
MODELS = {
    "Llama": lambda **how: LlamaModel(LlamaConfig(**TINY, use_cache=False, **how)),
    "GPT-2": lambda **how: GPT2Model(
        GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=2, use_cache=False, **how)
    ),
    "BERT": lambda **how: BertModel(BertConfig(**TINY, **how)),
    "RoBERTa": lambda **how: RobertaModel(RobertaConfig(**TINY, **how)),
    "ModernBERT": lambda **how: ModernBertModel(ModernBertConfig(**TINY, **SPECIAL, **how)),
    "DistilBERT": lambda **how: DistilBertModel(DistilBertConfig(**DISTIL, **how)),
    "BERT as decoder": lambda **how: BertModel(BertConfig(**TINY, is_decoder=True, use_cache=False, **how)),
    "RoBERTa as decoder": lambda **how: RobertaModel(RobertaConfig(**TINY, is_decoder=True, use_cache=False, **how)),
    "BART's decoder": lambda **how: BartDecoder(BartConfig(**BART, use_cache=False, **how)),
    "OPT": lambda **how: OPTModel(OPTConfig(**OPT, use_cache=False, **how)),
    "Falcon": lambda **how: FalconModel(FalconConfig(**FALCON, use_cache=False, **how)),
    "BLOOM": lambda **how: BloomModel(
        BloomConfig(vocab_size=100, hidden_size=32, n_layer=2, n_head=2, use_cache=False, **how)
    ),
    "MPT": lambda **how: MptModel(
        MptConfig(vocab_size=100, d_model=32, n_layers=2, n_heads=2, expansion_ratio=2, use_cache=False, **how)
    ),
}
ATTENTION = ("sdpa", "eager", "flex_attention")
HAS = {"GPT-2": ATTENTION[:2], "Falcon": ATTENTION[:2], "BLOOM": ("eager",), "MPT": ("eager",)}
PACKED = torch.cat([torch.arange(6), torch.arange(8)])[None]


@torch.no_grad()
def change_of_the_second_sequence(model):
    """When the first one in its row is another: 0 where the model keeps them apart."""
    ids = torch.arange(14)[None] * 5 + 3
    other = torch.cat([ids[:, :6] + 2, ids[:, 6:]], 1)
    one, two = (model.eval()(input_ids=x, position_ids=PACKED)[0][:, 6:] for x in (ids, other))
    return (one - two).abs().max().item()


def test_encoders_and_some_decoders_leak_although_positions_start_again():
    wrong = []
    for name, attention in [(model, how) for model in MODELS for how in HAS.get(model, ATTENTION)]:
        set_seed(0)
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # flex_attention would rather be compiled
            change = change_of_the_second_sequence(MODELS[name](attn_implementation=attention))
        if not (change == 0 if name in ("Llama", "GPT-2") else change > 1e-4):
            wrong.append((name, attention, change))
    assert wrong == []


LINEAR = dict(
    head_dim=16, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2
)
HYBRIDS = {
    "LFM2": lambda: Lfm2Model(Lfm2Config(**TINY, num_key_value_heads=2, layer_types=["conv", "full_attention"])),
    "Qwen3.5": lambda: Qwen3_5TextModel(
        Qwen3_5TextConfig(**TINY, **LINEAR, num_key_value_heads=2, layer_types=["linear_attention", "full_attention"])
    ),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrid_models_leak_although_positions_start_again(name):
    set_seed(0)
    assert change_of_the_second_sequence(HYBRIDS[name]()) > 1e-4


@pytest.mark.parametrize(
    "name, flags, message",
    [
        ("Qwen3.5", {"return_flash_attn_kwargs": True}, "linear_attention"),
        ("Qwen3.5", {"return_flash_attn_kwargs": True, "return_seq_idx": True}, "causal_conv1d"),
        ("LFM2", {"return_flash_attn_kwargs": True, "return_seq_idx": True}, "causal_conv1d"),
    ],
)
def test_hybrid_models_that_know_of_the_borders_refuse_without_the_kernels(name, flags, message):
    row = flattened(**flags)
    row = {key: value for key, value in row.items() if key != "labels"} | {"input_ids": row["input_ids"] % 100}
    assert raised(HYBRIDS[name]().eval(), **row, use_cache=False) == error(message)


def test_t5_drops_position_ids_without_a_word_and_leaks(recwarn):
    assert "position_ids" not in inspect.signature(T5EncoderModel.forward).parameters
    set_seed(0)
    model = T5EncoderModel(T5Config(vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2))
    assert change_of_the_second_sequence(model) > 1e-4
    assert not [warning for warning in recwarn if "position" in str(warning.message)]


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "OPT", "ModernBERT", "DistilBERT"])
def test_given_borders_reach_the_attention_of_every_model_and_positions_not_that_of_two(name, monkeypatch):
    """In place of flash attention, one that only notes what it is given."""
    seen = []

    def attention(module, query, key, value, mask, **given):
        seen.append({key for key, value in given.items() if value is not None})
        return query.transpose(1, 2), None

    monkeypatch.setitem(modeling_utils.AttentionInterface._global_mapping, "noting", attention)
    monkeypatch.setitem(
        masking_utils.AttentionMaskInterface._global_mapping, "noting", masking_utils.flash_attention_mask
    )
    ids = torch.arange(14)[None] + 3
    MODELS[name](attn_implementation="noting")(
        input_ids=ids, position_ids=PACKED, cu_seq_lens_q=torch.tensor([0, 6, 14])
    )
    assert all("cu_seq_lens_q" in given for given in seen) and len(seen) == 2
    assert all(("position_ids" in given) == (name not in ("ModernBERT", "DistilBERT")) for given in seen)


@pytest.mark.parametrize("borders", [None, torch.tensor([0, 6, 14])], ids=["positions", "borders"])
def test_flash_attention_takes_an_attention_mask_first(borders, monkeypatch):
    class MaskTaken(Exception):
        pass

    def taken(*args):
        raise MaskTaken

    nothing = lambda *args, **options: {}  # noqa: E731
    functions = (nothing,) * 5, (nothing,) * 2
    monkeypatch.setattr(modeling_flash_attention_utils, "lazy_import_flash_attention", lambda *args: functions)
    monkeypatch.setattr(modeling_flash_attention_utils, "_upad_input", taken)
    states = torch.ones(1, 14, 2, 8)
    with pytest.raises(MaskTaken):
        modeling_flash_attention_utils._flash_attention_forward(
            states, states, states, torch.zeros(1, 14), 14, True, position_ids=PACKED,
            cu_seq_lens_q=borders, cu_seq_lens_k=borders, max_length_q=8, max_length_k=8,
        )  # fmt: skip
    mask = torch.ones(1, 14, dtype=torch.bool)
    assert masking_utils.flash_attention_mask(1, 14, 14, attention_mask=mask) is None  # without a 0 there is none


def test_sdpa_isolates_several_packed_rows_too():
    model, row = llama(), flattened()
    two = {key: value.repeat(2, 1) for key, value in row.items()}
    assert loss(model, **two, use_cache=False) == pytest.approx(loss_alone(model), rel=1e-5)


# Shapes


def test_the_wave_of_the_page():
    printed = run("throughput/waves.py").stdout
    assert "3456 tokens: 100%" in printed
    assert "3584 tokens: 52%" in printed


def test_one_row_more_than_a_tile_takes_a_second_wave():
    busy = load("throughput/waves.py").busy
    assert busy(128, 256, multiprocessors=1) == 1
    assert busy(129, 256, multiprocessors=1) == pytest.approx(129 / 256)


def test_the_vocabulary_is_padded_to_a_multiple_of_64():
    assert run("throughput/pad_vocabulary.py").stdout.endswith("50304 (50304, 64)\n")


# Trainers, Windows


@pytest.mark.parametrize(
    "first, keep, fails",
    [
        ("", "batch", True),
        ("", "copy.deepcopy(batch)", False),
        ("torch.multiprocessing.set_sharing_strategy('file_system')", "batch", False),
    ],
)
def test_a_kept_batch_of_a_worker_keeps_a_file_open(first, keep, fails):
    program = f"""
import copy, resource
import torch
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
{first}
rows = [torch.ones(8) for _ in range(300)]
print(len([{keep} for batch in torch.utils.data.DataLoader(rows, num_workers=1)]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    told = "Too many open files. Communication with the workers is no longer possible"
    assert told in ended.stderr if fails else ended.stdout == "300\n"


@pytest.mark.parametrize("stream, ignored, read", [(False, False, 5), (True, False, 25), (True, True, 5)])
def test_a_stream_is_read_again_up_to_the_row_where_it_stopped(stream, ignored, read, tmp_path):
    """20 steps of one row, then 4 more; one row is read ahead."""
    seen = []

    def row(number):
        seen.append(number)
        return {"input_ids": torch.arange(8), "labels": torch.arange(8)}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, number):
            return row(number)

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from map(row, range(64))

    def trainer(steps):
        config = LlamaConfig(
            hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
        )
        arguments = TrainingArguments(
            tmp_path, max_steps=steps, save_steps=20, per_device_train_batch_size=1, use_cpu=True, disable_tqdm=True,
            logging_strategy="no", report_to="none", ignore_data_skip=ignored,
        )  # fmt: skip
        return Trainer(LlamaForCausalLM(config), arguments, train_dataset=Stream() if stream else Rows())

    trainer(20).train()
    seen.clear()
    trainer(24).train(resume_from_checkpoint=True)
    assert len(seen) == read


def test_a_stream_of_datasets_keeps_its_place():
    def rows():
        return datasets.Dataset.from_dict({"row": [*range(8)]}).to_iterable_dataset()

    first, again = rows(), rows()
    reader = iter(first)
    assert [next(reader)["row"] for _ in range(3)] == [0, 1, 2]
    again.load_state_dict(first.state_dict())
    assert [row["row"] for row in again] == [3, 4, 5, 6, 7]


def test_workers_that_start_as_new_pythons_need_a_guard(tmp_path):
    program = """
from torch.utils.data import DataLoader
{guard}print(len(list(DataLoader([1, 2], num_workers=1, multiprocessing_context="spawn"))))
"""
    made = []
    for guard in ("", 'if __name__ == "__main__": '):
        (tmp_path / "train.py").write_text(program.format(guard=guard))
        made.append(
            subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        )
    assert (
        made[0].returncode
        and "before the\n        current process has finished its bootstrapping phase" in made[0].stderr
    )
    assert made[1].stdout.split() == ["2"]


def test_the_strategies_of_sampling_and_of_packing_are_those_of_the_page():
    choices = TrainingArguments.__dataclass_fields__["train_sampling_strategy"].metadata["choices"]
    assert set(choices) == {"random", "sequential", "group_by_length", "batch_rebalance"}
    assert trl.SFTConfig.__dataclass_fields__["packing_strategy"].default == "bfd"
    arguments = TrainingArguments(
        "out", use_cpu=True, train_sampling_strategy="group_by_length",
        per_device_train_batch_size=2, gradient_accumulation_steps=4,
    )  # fmt: skip
    rows = [{"input_ids": [1] * length, "labels": [1]} for length in range(1, 20)]
    assert Trainer(model=llama(), args=arguments, train_dataset=rows)._get_train_sampler().batch_size == 2 * 4


# What the compiler leaves in the names, how streams are divided, how data sets are mixed


def test_compiling_in_place_keeps_the_names_of_the_weights():
    wrapped = torch.compile(torch.nn.Linear(2, 2))
    inside = torch.nn.Linear(2, 2)
    inside.compile()
    assert set(wrapped.state_dict()) == {"_orig_mod.weight", "_orig_mod.bias"}
    assert set(inside.state_dict()) == {"weight", "bias"}


@pytest.mark.parametrize(
    "strategy, small, large",
    [("first_exhausted", 10, 12), ("all_exhausted", 1017, 1000), ("all_exhausted_without_replacement", 10, 1000)],
)
def test_a_mixture_ends_as_its_strategy_says(strategy, small, large):
    parts = [datasets.Dataset.from_dict({"part": [name] * size}) for name, size in (("small", 10), ("large", 1000))]
    mixed = datasets.interleave_datasets(parts, probabilities=[0.5, 0.5], seed=0, stopping_strategy=strategy)["part"]
    assert (mixed[:].count("small"), mixed[:].count("large")) == (small, large)


def test_interleaved_streams_have_as_many_shards_as_the_smallest_part():
    parts = [datasets.Dataset.from_dict({"x": range(100)}).to_iterable_dataset(num_shards=shards) for shards in (2, 4)]
    assert datasets.interleave_datasets(parts).num_shards == 2


def test_each_worker_reads_a_whole_stream_unless_it_asks_which_worker_it_is():
    said = run("throughput/iterable.py").stdout.splitlines()
    assert said[0] == "Whole, 0 workers: 100 rows, 100 different ones"
    assert said[1] == "Whole, 2 workers: 200 rows, 100 different ones"
    assert said[2:] == [f"Stream, {workers} workers: 100 rows, 100 different ones" for workers in (0, 2)]


def test_a_stream_of_one_shard_serves_one_worker(monkeypatch):
    stream = datasets.Dataset.from_dict({"x": range(16)}).to_iterable_dataset(num_shards=1)
    served = set()
    for row in torch.utils.data.DataLoader(stream.map(lambda row: {"worker": worker()}), num_workers=2, batch_size=None):
        served.add(int(row["worker"]))
    assert served == {0}
    said = []
    monkeypatch.setattr(datasets.iterable_dataset.logger, "warning", said.append)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: types.SimpleNamespace(id=0, num_workers=2))
    assert len(list(stream)) == 16 and "dataloader workers: 2 (max is dataset.num_shards=1)" in said[0]
    assert callable(datasets.IterableDataset.reshard)


def worker():
    return torch.utils.data.get_worker_info().id


@pytest.mark.parametrize(("buffer", "whole"), [(100, False), (1, True)])
def test_a_resumed_stream_loses_the_rows_of_its_shuffle_buffer(buffer, whole):
    rows = datasets.Dataset.from_dict({"row": range(600)})

    def stream():
        return rows.to_iterable_dataset(num_shards=4).shuffle(seed=0, buffer_size=buffer)

    begun, seen = stream(), []
    for row in begun:
        seen.append(row["row"])
        if len(seen) == 200:
            kept = begun.state_dict()
            break
    resumed = stream()
    resumed.load_state_dict(kept)
    seen += [row["row"] for row in resumed]
    assert (sorted(seen) == list(range(600))) == whole
