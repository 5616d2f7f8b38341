"""docs/training/attention-and-loss.md, docs/training/attention-kernels.md and docs/training/loss.md, sentence by sentence. Its figures are tested where they are made, in the notebook."""

import functools
import importlib.util
import inspect
import re
import types
from unittest import mock

import datasets
import pytest
import tokenizers
import torch
import torch.nn.functional as F
import trl
from accelerate.utils import TorchDynamoPlugin, compile_regions
from programs import load, run, shown_message
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    CohereConfig,
    Gemma2Config,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen3Config,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.integrations import flex_attention, sdpa_attention
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_flash_attention_utils import (
    FLASH_ATTENTION_COMPATIBILITY_MATRIX,
    FLASH_ATTN_KERNEL_FALLBACK,
    _is_packed_sequence,
)
from transformers.utils import import_utils

SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500)


def without(package):
    reason = f"the message is that of an environment without {package}"
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=reason)


def error(name):
    kind, _, message = shown_message("attention_and_loss", name).partition(": ")
    return kind, message


def llama(cls=AutoModelForCausalLM, num_hidden_layers=2, **options):
    set_seed(0)
    config = LlamaConfig(**SMALL | {"num_hidden_layers": num_hidden_layers}, num_key_value_heads=1)
    return (cls.from_config if cls is AutoModelForCausalLM else cls._from_config)(config, **options).train()


def calls(model, **batch):
    """What the model passes to SDPA in its first layer: mask and keywords."""
    real, seen = F.scaled_dot_product_attention, []

    def spy(query, key, value, attn_mask=None, **keywords):
        seen.append((attn_mask, key.size(1), keywords))
        return real(query, key, value, attn_mask=attn_mask, **keywords)

    with mock.patch("torch.nn.functional.scaled_dot_product_attention", spy):
        model(**batch, use_cache=False) if "Bert" not in type(model).__name__ else model(**batch)
    return seen[0]


def ids(batch=2, length=16):
    return torch.randint(0, 500, (batch, length), generator=torch.Generator().manual_seed(0))


@functools.cache
def chunked_loss():
    return load("attention_and_loss/chunked_loss.py")


@functools.cache
def built_in():
    return load("attention_and_loss/built_in.py")


@functools.cache
def answers_only():
    return load("attention_and_loss/answers_only.py")


def test_transformers_can_be_told_to_copy_the_heads():
    run("attention_and_loss/copy_heads.py")
    _, heads, options = calls(llama(), input_ids=ids())
    assert heads == 1 and options["enable_gqa"]
    with mock.patch.object(sdpa_attention, "use_gqa_in_sdpa", lambda *_: False):
        _, heads, options = calls(llama(), input_ids=ids())
    assert heads == SMALL["num_attention_heads"] and not options.get("enable_gqa")


@pytest.mark.parametrize("name", ["deberta_v2.DebertaV2", "mpnet.MPNet", "longformer.Longformer", "led.LED", "big_bird.BigBird"])
def test_these_models_have_eager_attention_alone(name):
    folder, _, model = name.partition(".")
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    base = getattr(module, f"{model}Model")
    with pytest.raises(ValueError, match="does not support an attention implementation through torch.nn.functional.scaled_dot"):
        base(base.config_class(attn_implementation="sdpa", num_hidden_layers=1))


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    lengths = [32, 20, 27, 8, 32, 31, 5, 16]
    return [
        {"input_ids": row, "labels": row} for row in (torch.randint(0, 500, (n,), generator=generator) for n in lengths)
    ]


def losses(model, data, collator=None, **arguments):
    set_seed(0)
    arguments = TrainingArguments(
        "out", max_steps=2, logging_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True, **arguments
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collator or padded)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def padded(features):
    width = max(len(row["input_ids"]) for row in features)
    fill = {"input_ids": 0, "labels": -100}
    batch = {
        key: torch.stack([F.pad(row[key], (0, width - len(row[key])), value=value) for row in features])
        for key, value in fill.items()
    }
    return batch | {"attention_mask": (batch["labels"] != -100).long()}


# The programs


def test_the_program_says_which_kernel_sdpa_takes_and_all_kernels_compute_the_same():
    causal, masked, difference = run("attention_and_loss/backend.py").stdout.splitlines()[-3:]
    if not torch.cuda.is_available():
        assert "FLASH_ATTENTION" in causal
        assert "FLASH_ATTENTION" in masked
    assert float(difference.split()[-1]) < 1e-2


def test_flash_attention_has_a_kernel_of_the_hub_and_asks_for_the_gpus_of_the_table():
    capability = {
        version: facts.get("cuda_min_major_version") for version, facts in FLASH_ATTENTION_COMPATIBILITY_MATRIX.items()
    }
    assert capability == {2: None, 3: 8, 4: 9}
    assert FLASH_ATTN_KERNEL_FALLBACK["flash_attention_2"] == "kernels-community/flash-attn2"
    assert {f"flash_attention_{version}" for version in (3, 4)} < FLASH_ATTN_KERNEL_FALLBACK.keys()


# The kernels


def test_without_padding_transformers_drops_the_mask_which_lets_pytorch_take_flash():
    mask, heads, keywords = calls(llama(), input_ids=ids(), attention_mask=torch.ones(2, 16, dtype=torch.long))
    assert mask is None and keywords["is_causal"] and keywords["enable_gqa"] and heads == 1


def test_one_padding_token_brings_a_mask_and_repeats_the_key_and_value_heads():
    padding = torch.ones(2, 16, dtype=torch.long)
    padding[0, -1] = 0
    mask, heads, keywords = calls(llama(), input_ids=ids(), attention_mask=padding)
    assert mask.shape == (2, 1, 16, 16) and mask.dtype == torch.bool
    assert not keywords["is_causal"] and heads == 2


def test_the_same_holds_for_bert():
    bert = AutoModelForSequenceClassification.from_config(BertConfig(**SMALL)).train()
    padding = torch.ones(2, 16, dtype=torch.long)
    assert calls(bert, input_ids=ids(), attention_mask=padding)[0] is None
    padding[0, -1] = 0
    assert calls(bert, input_ids=ids(), attention_mask=padding)[0].shape == (2, 1, 16, 16)


@pytest.mark.parametrize("length, masked", [(7, False), (16, True)])
def test_a_sliding_window_brings_a_mask_as_soon_as_the_sequence_is_as_long_as_the_window(length, masked):
    model = AutoModelForCausalLM.from_config(MistralConfig(**SMALL, num_key_value_heads=1, sliding_window=8)).train()
    assert (calls(model, input_ids=ids(2, length))[0] is not None) == masked


def test_packed_sequences_bring_a_mask_too():
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
    mask, *_ = calls(llama(), input_ids=ids(1, 8), position_ids=positions)
    assert mask.shape == (1, 1, 8, 8) and mask.dtype == torch.bool and not mask[0, 0, 4, 3]


@pytest.mark.parametrize("rows, packed", [(1, True), (2, False)])
def test_flash_attention_reads_boundaries_from_position_ids_only_if_the_batch_is_one_row(rows, packed):
    assert bool(_is_packed_sequence(torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]] * rows), rows)) == packed


LLAMA = create_causal_mask, LlamaConfig(**SMALL, attn_implementation="sdpa"), None
BERT = create_bidirectional_mask, BertConfig(**SMALL, attn_implementation="sdpa"), torch.ones(2, 16, dtype=torch.long)


@pytest.mark.parametrize("make, config, given", [LLAMA, (*LLAMA[:2], BERT[2]), BERT], ids=["none", "ones", "bert"])
def test_while_a_model_is_compiled_its_mask_stays_without_padding(make, config, given):
    batch = {"attention_mask": given, "past_key_values": None, "position_ids": torch.arange(16)[None]}
    assert make(config, torch.zeros(2, 16, 64), **batch) is None
    assert torch.compile(make, backend="eager")(config, torch.zeros(2, 16, 64), **batch).shape == (2, 1, 16, 16)


def test_a_llama_makes_its_own_position_ids():
    with mock.patch("transformers.models.llama.modeling_llama.create_causal_mask", return_value=None) as make:
        llama()(input_ids=ids(), use_cache=False)
    assert torch.equal(make.call_args.kwargs["position_ids"], torch.arange(16)[None])


def test_compiled_layer_by_layer_a_batch_without_padding_has_no_mask():
    graphs = []
    model = compile_regions(llama(num_hidden_layers=1), backend=lambda graph, _: graphs.append(graph) or graph.forward)
    model(input_ids=ids(), attention_mask=BERT[2], use_cache=False)
    masks = [
        node.kwargs["attn_mask"]
        for graph in graphs
        for node in graph.graph.nodes
        if node.target is F.scaled_dot_product_attention
    ]
    assert masks == [None]


def test_trainer_compiles_the_whole_model_unless_the_environment_asks_for_layers(monkeypatch):
    monkeypatch.delenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", raising=False)
    arguments = {"backend": "inductor", "mode": None, "dynamic": None}  # what Trainer passes
    assert not TorchDynamoPlugin(**arguments).use_regional_compilation
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "true")
    assert TorchDynamoPlugin(**arguments).use_regional_compilation


def test_all_kernels_compute_the_same():
    batch = ids()
    outputs = [llama(attn_implementation=name).eval()(input_ids=batch).logits for name in ("eager", "sdpa")]
    assert torch.allclose(*outputs, atol=1e-5)


def test_set_attn_implementation_changes_the_kernel_of_a_model_that_exists():
    model = llama()
    model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "eager"


def test_a_name_that_does_not_exist_is_refused():
    kind, message = error("unknown_attention")
    with pytest.raises(ValueError) as caught:
        llama(attn_implementation="flash")
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


@without("kernels")
def test_flash_attention_without_its_package():
    kind, message = error("flash_missing")
    with pytest.raises(ImportError) as caught:
        llama(attn_implementation="flash_attention_2")
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


@without("kernels")
def test_a_kernel_of_the_hub_without_the_package_kernels():
    kind, message = error("kernels_missing")
    with pytest.raises(ImportError) as caught:
        llama(attn_implementation="kernels-community/flash-attn2")
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


def test_flex_attention_has_no_backward_pass_on_a_cpu():
    kind, message = error("flex_on_cpu")
    model, batch = llama(attn_implementation="flex_attention"), ids(2, 128)
    uncompiled = torch.compiler.set_stance("force_eager")  # else the mask is compiled first, which takes 15 s
    with pytest.raises(NotImplementedError) as caught, uncompiled:
        model(input_ids=batch, labels=batch).loss.backward()
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


@functools.cache
def flex_training():
    return load("attention_and_loss/flex_training.py")


def packed_texts():
    texts = [ids(1, length)[0] for length in (50, 60, 40, 88)]
    return texts, flex_training().packed(texts)


def test_flex_attention_takes_a_block_mask_once_for_all_layers_and_keeps_the_texts_apart():
    """A CPU has the forward pass. It runs uncompiled here: compiling takes half a minute, and computes the same."""
    texts, (tokens, positions, numbers, labels) = packed_texts()
    assert tokens.shape == (2, 128)
    rule, seen = flex_training().mask_of, []

    def forward(attention, make):
        model = llama(attn_implementation=attention).eval()
        with mock.patch.object(flex_training(), "block_mask", make):
            mask = rule(numbers)
        for layer in model.model.layers:
            layer.self_attn.register_forward_pre_hook(
                lambda module, args, keywords: seen.append(keywords["attention_mask"] is mask), with_kwargs=True
            )
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            return model(tokens, attention_mask=mask, position_ids=positions, labels=labels, use_cache=False), model

    blocks, _ = forward("flex_attention", create_block_mask)
    dense, model = forward("sdpa", create_mask)
    assert seen == [True] * 4
    assert torch.allclose(blocks.logits, dense.logits, atol=1e-5)
    alone = [F.cross_entropy(model(text[None]).logits[0, :-1], text[1:], reduction="sum") for text in texts]
    learned = sum(len(text) - 1 for text in texts)
    assert blocks.loss.item() == pytest.approx(sum(alone).item() / learned, rel=1e-5)


def test_flex_attention_compiles_again_for_a_new_length_and_not_for_other_texts():
    graphs = []

    def compiled(graph, inputs):
        graphs.append(graph)
        return graph.forward

    attention = torch.compile(torch_flex.flex_attention, backend=compiled)
    for length, border in [(128, 5), (128, 70), (256, 9)]:
        numbers = (torch.arange(length) >= border)[None]
        with mock.patch.object(flex_training(), "block_mask", create_block_mask):
            mask = flex_training().mask_of(numbers)
        attention(*torch.randn(3, 1, 2, length, 16), block_mask=mask)
        graphs.append(None)
    assert [graph is None for graph in graphs] == [False, True, True, False, True]
    assert torch._dynamo.config.recompile_limit == 8 and not torch._dynamo.config.fail_on_recompile_limit_hit


def given_to_flex(query_heads, **options):
    """What transformers hands to FlexAttention of two key and value heads: how many of them, and the keywords."""
    query, key = torch.randn(1, query_heads, 4, 16), torch.randn(1, 2, 4, 16)
    with mock.patch.object(flex_attention, "compile_friendly_flex_attention", return_value=query) as called:
        flex_attention.flex_attention_forward(torch.nn.Identity().eval(), query, key, key, None, **options)
    return called.call_args.args[1].shape[1], called.call_args.kwargs


@pytest.mark.parametrize("query_heads, copied", [(4, 2), (8, 2), (6, 6), (12, 12)])
def test_key_and_value_heads_are_copied_for_flex_attention_where_the_query_heads_are_no_power_of_two(query_heads, copied):
    heads, options = given_to_flex(query_heads)
    assert heads == copied and options["enable_gqa"] == (copied == 2)


def test_flex_attention_refuses_dropout():
    model = llama(attn_implementation="flex_attention")
    model.config.attention_dropout = model.model.layers[0].self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match="does not support `dropout`"), torch.compiler.set_stance("force_eager"):
        model(ids(1, 128), use_cache=False)


def test_a_mask_of_four_dimensions_replaces_the_sliding_window():
    model = AutoModelForCausalLM.from_config(MistralConfig(**SMALL, num_key_value_heads=1, sliding_window=8)).train()
    causal = torch.ones(1, 1, 16, 16, dtype=torch.bool).tril()
    assert calls(model, input_ids=ids(1, 16))[0].sum() < causal.sum()
    assert calls(model, input_ids=ids(1, 16), attention_mask=causal)[0] is causal


def test_a_kernel_that_the_device_lacks():
    kind, message = error("no_backend")
    query = torch.randn(1, 2, 8, 16)
    with pytest.raises(RuntimeError) as caught, sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        F.scaled_dot_product_attention(query, query, query)
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


# Logits and loss


@pytest.mark.parametrize("chunk", [7, 16, 2048])
def test_the_chunked_loss_has_the_loss_and_the_gradients_of_the_usual_one(chunk):
    set_seed(0)
    values, labels = (torch.randn(2, 33, 16), torch.randn(500, 16)), ids(2, 33)
    labels[0, :10] = -100

    def usual(hidden, weight):
        return F.cross_entropy(F.linear(hidden, weight)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    def chunked(hidden, weight):
        return chunked_loss().chunked_cross_entropy(hidden, weight, labels, chunk=chunk)

    found = []
    for compute in (usual, chunked):
        inputs = [value.clone().requires_grad_() for value in values]
        loss = compute(*inputs)
        found.append([loss, *torch.autograd.grad(loss, inputs)])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found))


def test_the_model_of_the_page_has_the_loss_and_the_gradients_of_the_usual_model():
    batch, found = ids(2, 33), []
    for cls in (AutoModelForCausalLM, chunked_loss().ChunkedLlamaForCausalLM):
        model = llama(cls)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        found.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    assert len(found[0]) == len(found[1]) > 10
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found))


def test_it_divides_by_the_tokens_of_all_micro_batches(rows):
    model = chunked_loss().ChunkedLlamaForCausalLM
    usual = losses(llama(), rows, per_device_train_batch_size=4)
    assert losses(llama(model), rows, per_device_train_batch_size=4) == pytest.approx(usual, rel=1e-4)
    accumulated = losses(llama(model), rows, per_device_train_batch_size=2, gradient_accumulation_steps=2)
    assert accumulated == pytest.approx(usual, rel=1e-4)


def test_a_class_without_forcausallm_in_its_name_is_divided_by_another_count(rows):
    renamed = type("ChunkedLlama", (chunked_loss().ChunkedLlamaForCausalLM,), {})
    usual = losses(llama(), rows, per_device_train_batch_size=4)[0]
    assert losses(llama(renamed), rows, per_device_train_batch_size=4)[0] < 0.97 * usual


def test_it_evaluates_and_generates_as_before():
    model, batch = llama(chunked_loss().ChunkedLlamaForCausalLM).eval(), ids()
    assert model(input_ids=batch, labels=batch).logits.shape == (2, 16, 500)
    assert model.generate(batch, max_new_tokens=2, do_sample=False, pad_token_id=0).shape == (2, 18)


def test_compute_loss_func_comes_too_late_because_the_logits_exist_by_then(rows):
    seen = []

    def compute_loss(outputs, labels, num_items_in_batch=None):
        seen.append(outputs.logits.shape[-1])
        return outputs.logits.float().mean()

    arguments = TrainingArguments("out", max_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True)
    trainer = Trainer(
        model=llama(), args=arguments, train_dataset=rows, data_collator=padded, compute_loss_func=compute_loss
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    assert seen == [500]


def test_label_smoothing_of_trainer_takes_the_labels_away_from_the_model_and_only_that_of_trl_warns(rows, recwarn, tmp_path):
    for smoothing, with_labels in ((0.0, True), (0.1, False)):
        model, seen = llama(chunked_loss().ChunkedLlamaForCausalLM), []
        model.register_forward_pre_hook(
            lambda _, args, kwargs, seen=seen: seen.append("labels" in kwargs), with_kwargs=True
        )
        losses(model, rows, per_device_train_batch_size=4, label_smoothing_factor=smoothing)
        assert set(seen) == {with_labels}
    assert not [warning for warning in recwarn if "smooth" in str(warning.message)]
    with pytest.warns(FutureWarning, match="Label smoothing .* each step runs an extra forward pass"):
        sft_trainer(tmp_path, label_smoothing_factor=0.1)


def test_pieces_give_the_gradients_of_the_whole_contrastive_batch_and_accumulation_gives_others():
    program = load("attention_and_loss/contrastive.py")
    ids = torch.randint(5, 1000, (64, 16), generator=torch.Generator().manual_seed(0)).to(program.device)

    def gradients(backward):
        program.model.zero_grad()
        backward()
        return torch.cat([one.grad.flatten() for one in program.model.parameters() if one.grad is not None])

    def accumulated():
        queries, answers = ids.chunk(2)
        for pair in zip(queries.split(8), answers.split(8), strict=True):
            (program.loss_of(program.embed(torch.cat(pair))) / 4).backward()

    whole = gradients(lambda: program.loss_of(program.embed(ids)).backward())
    pieces = gradients(lambda: program.backward_in_chunks(ids, chunk=8))
    assert torch.allclose(whole, pieces, atol=1e-5)
    assert torch.norm(gradients(accumulated) - whole) > 0.1 * torch.norm(whole)


def test_the_contrastive_program_learns():
    printed = run("attention_and_loss/contrastive.py").stdout
    values = [float(value) for value in re.findall(r"loss ([\d.]+)", printed)]
    assert len(values) == 4 and values == sorted(values, reverse=True)


def test_the_usual_loss_takes_the_logits_to_fp32():
    model, batch = llama(dtype=torch.bfloat16), ids()
    loss = model(input_ids=batch, labels=batch).loss
    assert loss.dtype == torch.float32


def test_logits_for_the_answers_only_give_the_same_loss():
    shape, own, usual = run("attention_and_loss/answers_only.py").stdout.splitlines()[-1].rsplit(" ", 2)
    assert shape == "(32, 999)"
    assert float(own) == pytest.approx(float(usual), rel=1e-5)


def test_logits_for_the_answers_only_give_the_same_gradients():
    batch, found = ids(2, 33), []
    labels = batch.clone()
    labels[:, :20] = -100
    for change in (dict, answers_only().answers_only):
        model = llama()
        model(**change({"input_ids": batch, "labels": labels})).loss.backward()
        found.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found))


def test_trainer_has_the_same_loss_with_logits_for_the_answers_only(rows):
    for row in rows:
        row["labels"] = torch.where(torch.arange(len(row["labels"])) < 3, -100, row["labels"])
    accumulated = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    usual = losses(llama(), rows, **accumulated)
    own = losses(llama(), rows, lambda some: answers_only().answers_only(padded(some)), **accumulated)
    assert own == pytest.approx(usual, rel=1e-4)


def test_integers_in_logits_to_keep_are_read_as_positions():
    keep = torch.tensor([[0, 1, 1, 1]])
    assert llama()(input_ids=ids(1, 4), logits_to_keep=keep).logits.shape == (1, 4, 500)
    assert llama()(input_ids=ids(1, 4), logits_to_keep=keep.bool()).logits.shape == (3, 500)


def test_the_function_of_torch_has_the_same_loss_in_fp32():
    *pair, language_model = run("attention_and_loss/built_in.py").stdout.split()[-3:]
    assert float(pair[0]) == pytest.approx(float(pair[1]), rel=1e-5)
    assert float(language_model) > 0


def test_the_function_of_torch_has_the_same_gradients_in_fp32():
    set_seed(0)
    values, labels = (torch.randn(64, 16), torch.randn(500, 16)), torch.randint(0, 500, (64,))
    options = torch.nn.LinearCrossEntropyOptions()
    found = []
    for compute in (
        lambda hidden, weight: F.cross_entropy(F.linear(hidden, weight), labels),
        lambda hidden, weight: F.linear_cross_entropy(hidden, weight, labels, options=options),
    ):
        inputs = [value.clone().requires_grad_() for value in values]
        found.append(torch.autograd.grad(compute(*inputs), inputs))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found))


@pytest.mark.parametrize(
    ("config", "change"),
    [
        (Gemma2Config(**SMALL, head_dim=32, num_key_value_heads=1), lambda logits: 30 * torch.tanh(logits / 30)),
        (CohereConfig(**SMALL), lambda logits: 0.0625 * logits),
        (GraniteConfig(**SMALL, logits_scaling=8.0), lambda logits: logits / 8),
    ],
)
def test_a_model_that_changes_its_logits_behind_the_output_layer_has_another_loss(config, change):
    set_seed(0)
    model, batch = AutoModelForCausalLM.from_config(config).eval(), torch.randint(0, 500, (2, 16))
    model.lm_head.weight.data.mul_(50)  # logits as large as those of a trained model
    hidden, usual = model.model(batch).last_hidden_state, model(batch, labels=batch).loss.item()
    labels = F.pad(batch, (0, 1), value=-100)[:, 1:].flatten()
    plain = chunked_loss().chunked_cross_entropy(hidden, model.lm_head.weight, batch).item()
    changed = F.cross_entropy(change(hidden.flatten(0, 1) @ model.lm_head.weight.T), labels, ignore_index=-100).item()
    assert changed == pytest.approx(usual, rel=1e-4)
    assert plain != pytest.approx(usual, rel=1e-2)


def test_for_a_language_model_it_stands_in_for_the_chunked_loss():
    set_seed(0)
    hidden, weight, labels = torch.randn(2, 33, 16), torch.randn(500, 16), ids(2, 33)
    labels[0, :10] = -100
    for num_items in (None, torch.tensor(200)):
        expected = chunked_loss().chunked_cross_entropy(hidden, weight, labels, num_items)
        assert torch.allclose(built_in().built_in_cross_entropy(hidden, weight, labels, num_items), expected, rtol=1e-5)
    with pytest.raises(RuntimeError, match="dimensionality 1 or 2, got 3"):
        F.linear_cross_entropy(hidden, weight, labels)


def test_autocast_does_not_reach_it_on_a_cpu():
    set_seed(0)
    hidden, weight, labels = torch.randn(64, 16), torch.randn(500, 16), torch.zeros(64, dtype=torch.long)
    options = torch.nn.LinearCrossEntropyOptions()
    expected = F.linear_cross_entropy(hidden, weight, labels, options=options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(F.linear_cross_entropy(hidden, weight, labels, options=options), expected)
        assert not torch.equal(F.cross_entropy(F.linear(hidden, weight).float(), labels), expected)


def test_its_loss_has_the_dtype_of_the_hidden_state():
    hidden, weight = torch.randn(64, 16, dtype=torch.bfloat16), torch.randn(500, 16, dtype=torch.bfloat16)
    options = torch.nn.LinearCrossEntropyOptions()
    loss = F.linear_cross_entropy(hidden, weight, torch.zeros(64, dtype=torch.long), options=options)
    assert loss.dtype == torch.bfloat16


def test_its_backward_pass_runs_once():
    kind, message = error("backward_twice")
    hidden, weight = torch.randn(64, 16, requires_grad=True), torch.randn(500, 16, requires_grad=True)
    options = torch.nn.LinearCrossEntropyOptions()
    loss = F.linear_cross_entropy(hidden, weight, torch.zeros(64, dtype=torch.long), options=options)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError) as caught:
        loss.backward()
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


@without("liger_kernel")
def test_liger_without_its_package(rows):
    kind, message = error("liger_missing")
    arguments = TrainingArguments("out", max_steps=1, use_cpu=True, use_liger_kernel=True)
    with pytest.raises(ImportError) as caught:
        Trainer(model=llama(), args=arguments, train_dataset=rows).train()
    assert (type(caught.value).__name__, str(caught.value)) == (kind, message)


def test_torch_knows_the_newer_kernels_and_the_gpus_that_they_take(monkeypatch):
    from torch.nn import attention
    from torch.nn.attention import _fa3, _fa4, varlen

    assert {"FA3", "FA4"} <= set(attention.list_flash_attention_impls())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    query = types.SimpleNamespace(is_cuda=True, device="cuda:0", dtype=torch.bfloat16, dim=lambda: 4)
    taken = {"FA3": [], "FA4": []}
    for major in (8, 9, 10, 12):
        for module in (_fa3, _fa4):
            monkeypatch.setattr(module, "_get_device_major", lambda device, major=major: major)
        refused = {"FA3": _fa3._fa3_common_support_error(query, (query,), 0.0, None, None, None, None),
                   "FA4": _fa4._fa4_common_support_error(query, (query,), None)}  # fmt: skip
        for name, words in refused.items():
            if words:
                assert "requires compute capability" in words
            else:
                taken[name].append(major)
    assert taken == {"FA3": [9], "FA4": [9, 10]}
    assert {"cu_seq_q", "cu_seq_k"} <= set(inspect.signature(varlen.varlen_attn).parameters)


# Kernels by GPU and model, TRL


def test_the_versions_of_the_package_kernels_that_transformers_takes():
    assert (import_utils.KERNELS_MIN_VERSION, import_utils.KERNELS_MAX_VERSION) == ("0.18.2", "0.19.0")


@pytest.mark.parametrize("balanced", [True, False])
def test_without_a_mask_only_the_balancing_loss_of_a_mixture_counts_padding(balanced):
    set_seed(0)
    config = MixtralConfig(**SMALL, num_key_value_heads=1, num_local_experts=4, output_router_logits=balanced)
    model = AutoModelForCausalLM.from_config(config).train()
    tokens, mask = ids(2, 12), torch.ones(2, 12, dtype=torch.long)
    mask[1, 5:] = 0
    labels = tokens.masked_fill(mask == 0, -100)
    with_mask, without = (
        model(input_ids=tokens, labels=labels, **masks).loss.item() for masks in ({"attention_mask": mask}, {})
    )
    assert (abs(with_mask - without) < 1e-6) != balanced


def test_gpt_oss_runs_eager_by_default_refuses_sdpa_and_takes_flex_with_its_sinks():
    config = GptOssConfig(**SMALL, num_key_value_heads=2, num_local_experts=2, head_dim=16)
    assert AutoModelForCausalLM.from_config(config).config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="scaled_dot_product_attention") as caught:
        AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    assert (type(caught.value).__name__, str(caught.value)) == error("no_sdpa")
    assert AutoModelForCausalLM.from_config(config, attn_implementation="flex_attention")
    assert "s_aux" in inspect.signature(flex_attention.flex_attention_forward).parameters


def test_a_mlp_in_tiles_gives_the_same_step_and_yarn_is_taken_from_rope_parameters():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1e6}
    config = Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16, rope_parameters=yarn)
    model, ids = AutoModelForCausalLM.from_config(config), torch.arange(64).view(1, 64)
    assert model.model.rotary_emb.rope_type == "yarn"

    def step():
        model.zero_grad()
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        return loss, [weight.grad.clone() for weight in model.parameters()]

    whole = step()
    for layer in model.model.layers:
        once = layer.mlp.forward
        layer.mlp.forward = lambda x, once=once: torch.cat([once(tile) for tile in x.split(16, dim=1)], dim=1)
    torch.testing.assert_close(step(), whole)


def test_the_options_of_flex_attention_reach_its_kernel():
    options = {"BLOCK_M": 32}
    assert given_to_flex(4, kernel_options=options)[1]["kernel_options"] == options


def sft_trainer(folder, **options):
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "[EOS]": 1, "a": 2, "b": 3}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", eos_token="[EOS]", pad_token="[EOS]")
    return trl.SFTTrainer(
        model=llama(),
        args=trl.SFTConfig(folder, use_cpu=True, bf16=False, report_to="none", **options),
        train_dataset=datasets.Dataset.from_dict({"text": ["a b a", "b"]}),
        processing_class=tokenizer,
    )


def test_trl_computes_the_loss_of_sft_without_the_logits(tmp_path):
    trainer = sft_trainer(tmp_path)
    ids = torch.tensor([[2, 3, 2]])
    assert (
        trainer.model(input_ids=ids, labels=ids, fused_lm_head=True).get("logits") is None
    )  # as its compute_loss calls it
    assert trainer.model(input_ids=ids).logits.shape == (1, 3, 500)
    with pytest.warns(FutureWarning, match="chunked_nll"):
        assert (
            trl.SFTConfig(tmp_path, use_cpu=True, bf16=False, report_to="none", loss_type="chunked_nll").loss_type
            == "nll"
        )
