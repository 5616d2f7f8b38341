"""docs/debugging.md, docs/debugging-memory.md, docs/debugging-numbers.md, docs/debugging-messages.md, docs/debugging-tools.md and docs/installation.md, symptom by symptom: each program makes its symptom, the test names it, and the fix clears it."""

import io
import json
import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
import textwrap

import datasets
import pytest
import torch
import yaml
from programs import ROOT, SNIPPETS, load, messages, run, shown_message
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils import cpp_extension, data
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BatchEncoding,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    MixtralConfig,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    logging,
)
from transformers.utils.logging import warning_once

from evidence.site.diagrams import hang as drawn

MESSAGES_PAGE = ROOT / "docs" / "debugging-messages.md"
SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
without_cuda = pytest.mark.skipif(
    torch.version.cuda is not None, reason="the message is that of the CPU build of torch"
)


def error(name):
    return shown_message("debugging", name)


def output(name):
    """What a tool printed, as the page shows it: shortened."""
    return (SNIPPETS / "debugging" / "outputs" / f"{name}.txt").read_text().strip()


def without_numbers(text):
    """A message without what differs from run to run."""
    return re.sub(r"\d+", "0", text)


def same(name, text):
    return without_numbers(error(name)) in without_numbers(text)


def raised(function, *arguments, **keywords):
    """The error of a call as Python prints it."""
    with pytest.raises(Exception) as caught:
        function(*arguments, **keywords)
    kind = type(caught.value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__name__}: {caught.value}"


def llama(**options):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL | options))


# Out of memory


OOM = yaml.safe_load((ROOT / "tests" / "data" / "oom_messages.yml").read_text())


@pytest.mark.parametrize("case", OOM, ids=lambda case: case["url"].split("github.com/")[1])
def test_the_program_tells_what_fills_the_gpu_of_a_published_message(case):
    assert case["verdict"] in load("debugging/read_oom.py").verdict(case["message"])


def test_the_program_reads_a_log_and_names_the_other_processes_of_the_message_on_the_page():
    verdict = load("debugging/read_oom.py").verdict(error("cuda_oom"))
    assert verdict == "other processes hold 15.3 GiB: nvidia-smi names them"
    empty = run("debugging/read_oom.py")
    assert not empty.stdout and "no 'out of memory. Tried to allocate' in this log" in empty.stderr


@pytest.fixture
def read_oom(monkeypatch, capsys):
    """What the program prints for a log on its standard input, line by line."""

    def printed(log):
        monkeypatch.setattr(sys, "stdin", io.StringIO(log))
        runpy.run_path(str(SNIPPETS / "debugging" / "read_oom.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return printed


@pytest.mark.parametrize("case", OOM, ids=lambda case: case["url"].split("github.com/")[1])
def test_the_program_says_of_a_log_what_its_function_says_of_the_message(case, read_oom):
    log = f"step 3\nTraceback (most recent call last):\ntorch.OutOfMemoryError: {case['message']}\n"
    (told,) = read_oom(log)
    assert told == load("debugging/read_oom.py").verdict(case["message"]) and case["verdict"] in told


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        (("1.00 GiB", "24.00 GiB", "0.50 GiB", "20.00 GiB", "2.00 GiB"), "2.5 GiB are free, but in pieces"),
        (("1.00 GiB", "24.00 GiB", "300.00 MiB", "22.90 GiB", "100.00 MiB"), "tensors hold 22.9 GiB of 24.0 GiB, and the step wants 1.0"),
        (("12.00 GiB", "120.00 GiB", "18.00 GiB", "95.00 GiB", "100.00 MiB"), "on a GPU that shares the host's memory, the kernel's"),
    ],
)
def test_a_full_gpu_is_told_from_memory_in_pieces_and_from_a_limit(figures, told, read_oom):
    wanted, total, free, tensors, unused = figures
    (verdict,) = read_oom(
        f"torch.OutOfMemoryError: HIP out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of {total} of which {free} is "
        f"free. Of the allocated memory {tensors} is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated."
    )
    assert told in verdict


def test_a_message_that_the_log_breaks_over_lines_is_read_whole(read_oom):
    broken = "step 3\n" + "\n".join(textwrap.wrap(error("cuda_oom"), 60)) + "\nTraceback (most recent call last):\n"
    assert read_oom(broken * 2) == 2 * ["other processes hold 15.3 GiB: nvidia-smi names them"]


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("Tried to allocate 21.50 GiB.", "the total capacity, what is free, what PyTorch holds"),
        ("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.50 GiB of which 1.10 GiB is free.", "what PyTorch holds"),
    ],
)
def test_a_message_that_was_cut_off_gets_no_verdict_and_the_figures_it_lacks_are_named(message, missing, read_oom):
    (told,) = read_oom(f"CUDA out of memory. {message}")
    assert told.startswith(f"this message lacks {missing}: ")


def test_a_list_of_losses_keeps_every_graph_and_a_list_of_numbers_none():
    lines = run("debugging/growing_memory.py").stdout.splitlines()
    kept, numbers = ([float(each) for each in re.findall(r"\d+\.\d", line)] for line in lines)
    assert kept == pytest.approx([kept[0] * step for step in (1, 2, 3, 4)], abs=0.11) and kept[0] > 1
    assert numbers == [0, 0, 0, 0]


def test_a_notebook_keeps_what_a_cell_showed_until_xdel_and_what_an_error_saw_until_the_next_error():
    """In a process of its own: IPython allows one shell."""
    program = """
import gc
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()

def alive(*cells):
    for cell in ["import torch, weakref; model = torch.nn.Linear(2, 2); found = weakref.ref(model)", *cells]:
        shell.run_cell(cell, store_history=True)
    gc.collect()
    return shell.user_ns["found"]() is not None

told = [
    alive("del model"),
    alive("model", "del model"),
    alive("model", "%xdel model"),
    alive("def step(given): raise RuntimeError", "step(model)", "del model"),
    alive("def step(given): raise RuntimeError", "step(model)", "del model", "1/0"),
]
print("told", told)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "told [False, True, False, True, False]" in ended.stdout, ended.stderr


def test_a_killed_worker_says_only_that_it_exited():
    assert same("worker_exited", run("debugging/dead_worker.py", "killed").stdout)


def test_an_error_in_a_worker_comes_at_second_hand_and_in_the_main_process_as_it_is():
    said = run("debugging/dead_worker.py", "raises").stdout
    assert error("worker_raises") in said
    assert "in the main process: KeyError: 'text'" in said


class EndsItself(data.Dataset):
    def __init__(self, by):
        self.by = by

    def __len__(self):
        return 1

    def __getitem__(self, row):
        os.kill(os.getpid(), self.by)


def test_pytorch_words_the_end_of_a_worker_as_on_the_page():
    bus_error = error("worker_bus_error").partition(": ")[2]
    for by, words in ((signal.SIGKILL, "is killed by signal: Killed"), (signal.SIGBUS, bus_error)):
        with pytest.raises(RuntimeError) as caught:
            list(data.DataLoader(EndsItself(by), num_workers=1))
        assert without_numbers(words) in without_numbers(f"{caught.value} {caught.value.__cause__}")


def test_torchrun_words_the_end_of_a_killed_rank_as_on_the_page():
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    killed = ProcessFailure(local_rank=0, pid=2198, exitcode=-9, error_file="")
    assert error("sigkill").partition(" : ")[2] in killed.message


def test_an_absurd_allocation_on_the_host_is_an_error_of_the_allocator():
    assert same("host_memory", raised(torch.empty, 2**50))


# Slow


def shares(line):
    return {part: float(share) for part, share in re.findall(r"(\w+) (\d+)%", line)}


def test_slow_rows_make_data_the_largest_part_of_a_step_and_rows_in_memory_do_not():
    slow, quick = map(shares, run("debugging/where_time_goes.py").stdout.splitlines())
    assert set(slow) == {"data", "forward", "backward", "optimizer"}
    assert slow["data"] == max(slow.values())
    assert quick["data"] < slow["data"] / 2 and quick["data"] < max(quick.values())


def test_twice_the_batch_costs_a_model_with_tiny_layers_less_than_one_with_wide_layers():
    tiny, wide = (float(x) for x in re.findall(r"([\d.]+)x the time", run("debugging/launch_bound.py").stdout))
    assert tiny < wide and wide > 1.5


def test_mfu_of_a_small_model_by_the_rule_and_by_its_trace(tmp_path):
    config = LlamaConfig(**SMALL, architectures=["LlamaForCausalLM"])
    arguments = ["config.json", "--gpu", "H100 80GB", "--length", 64, "--tokens-per-second", 1e10]
    made = run("debugging/mfu.py", *arguments, files={"config.json": config.to_json_string()})
    rule, traced = (float(share) for share in re.findall(r"(\d+)%", made.stdout))
    parameters = sum(each.numel() for each in llama().parameters())
    assert rule == pytest.approx(100 * 6 * parameters * 1e10 / 989.5e12, abs=0.5)
    assert traced > 0


def test_a_mixture_counts_the_parameters_that_a_token_uses():
    mfu = load("debugging/mfu.py")
    config = MixtralConfig(**SMALL, num_local_experts=8, num_experts_per_tok=2)
    with torch.device("meta"):
        names = dict(AutoModelForCausalLM.from_config(config).named_parameters())
    experts = sum(each.numel() for name, each in names.items() if ".experts." in name)
    every = sum(each.numel() for each in names.values())
    assert mfu.active_parameters(config) == every - experts * 6 / 8
    rule, traced = mfu.utilization(config, 64, "H100 80GB", 1e6)
    assert 0.5 < traced / rule < 1.5


@pytest.mark.parametrize("kind", ["qwen3_5_moe", "gemma4"])
def test_experts_are_found_in_a_model_that_takes_pictures_too(kind):
    mfu = load("debugging/mfu.py")
    config = AutoConfig.for_model(kind)
    text = config.get_text_config()
    text.update({"num_hidden_layers": 1, "layer_types": ["full_attention"], "hidden_size": 64, "vocab_size": 100})
    text.update({"num_experts": 8, "moe_intermediate_size": 32})
    if kind == "gemma4":
        text.update({"enable_moe_block": True, "top_k_experts": 2, "vocab_size_per_layer_input": 100})
    else:
        text.num_experts_per_tok = 2
    with torch.device("meta"):
        names = dict(AutoModelForCausalLM.from_config(config).named_parameters())
    experts = sum(each.numel() for name, each in names.items() if ".experts." in name)
    assert experts
    assert mfu.active_parameters(config) == sum(each.numel() for each in names.values()) - experts * 6 / 8


def test_an_unknown_gpu_is_named_with_the_nearest():
    mfu = load("debugging/mfu.py")
    with pytest.raises(ValueError, match="did you mean"):
        mfu.utilization(LlamaConfig(**SMALL), 8, "H300", 1)


def network_rows(text):
    """[(bytes, microseconds, algbw, busbw)] of the network test's output."""
    rows = re.findall(r"^ +(\d+) +(\d+) +([\d.]+) +([\d.]+)$", text, re.M)
    return [tuple(map(float, row)) for row in rows]


def test_the_network_test_checks_the_sum_and_names_each_rank():
    ranks = run("debugging/network_test.py", processes=2).ranks
    said = ranks[0].stdout
    assert ranks[1].stdout == ""
    shown = [without_numbers(re.sub(r"on \S+:", "on host:", line)) for line in output("network").splitlines()]
    said_lines = [without_numbers(re.sub(r"on \S+:", "on host:", line)) for line in said.splitlines()]
    assert [line for line in shown if "rank" in line] == [line for line in said_lines if "rank" in line]
    assert "2 ranks on 1 node(s) by gloo: the sum is right on all" in said
    sizes = [size for size, *_ in network_rows(said)]
    assert sizes == [4**power for power in range(5, 13)] and {row[0] for row in network_rows(output("network"))} < {*sizes}


@pytest.mark.parametrize("ranks, factor", [(2, 1), (4, 1.5), (8, 1.75)])
def test_busbw_is_algbw_times_the_share_that_a_rank_sends_in_a_ring(ranks, factor):
    source = (SNIPPETS / "debugging" / "network_test.py").read_text()
    formula = re.search(r"return time_of_one, algorithm, (.*?)  #", source)[1]
    assert eval(formula, {"algorithm": 1, "world": ranks}) == factor
    for _, _, algorithm, bus in network_rows(output("network")):
        assert algorithm == bus  # of two ranks


def test_a_rank_with_a_wrong_sum_ends_the_network_test():
    source = (SNIPPETS / "debugging" / "network_test.py").read_text()
    check = source[source.index("def check_sum") : source.index("def all_reduce")]

    class Wrong:
        all_reduce = staticmethod(lambda tensor: tensor.add_(1))

    scope = {"torch": torch, "dist": Wrong, "rank": 1, "world": 2, "device": "cpu", "socket": __import__("socket")}
    exec(check, scope)
    with pytest.raises(AssertionError, match="got 2 in place of 1"):
        scope["check_sum"]()


# Hangs


def test_a_program_that_stands_still_shows_its_stack_and_goes_on():
    made = run("debugging/where_is_it.py")
    assert "Timeout (0:00:02)!" in made.stderr
    assert "in wait_for_a_rank_that_never_comes" in made.stderr
    assert "went on after 4 s" in made.stdout


# NaN and overflow


def logged(text):
    return re.findall(r"'loss': '([^']+)', 'grad_norm': '([^']+)'", text)


def test_trainer_logs_a_loss_of_0_where_it_is_nan():
    hidden = run("debugging/hidden_nan.py").stdout
    assert logged(hidden)[2:] == [("0", "nan"), ("0", "nan")]
    assert same("hidden_nan", hidden)


def test_without_the_filter_trainer_logs_the_nan():
    assert logged(run("debugging/hidden_nan.py", "shown").stdout)[2:] == [("nan", "nan"), ("nan", "nan")]
    assert TrainingArguments("out", use_cpu=True).logging_nan_inf_filter


@pytest.mark.parametrize(("cause", "steps", "again"), [("data", [150], [150]), ("rate", [*range(151, 158)], [])])
def test_a_jump_that_a_lower_rate_does_not_end_is_the_data(cause, steps, again):
    first, second, advice = run("debugging/loss_spike.py", cause).stdout.splitlines()[-3:]
    assert (first, second) == (f"jumps at steps {steps}", f"at a tenth of the rate at steps {again}")
    assert advice.startswith("look at the data" if cause == "data" else "lower the learning rate")


def test_trainer_logs_the_norm_as_it_was_before_clipping(tmp_path):
    arguments = TrainingArguments(
        tmp_path, max_steps=1, logging_steps=1, max_grad_norm=1e-3, use_cpu=True, save_strategy="no", report_to="none"
    )
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (8, 8))]
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=rows)
    trainer.train()
    assert float(trainer.state.log_history[0]["grad_norm"]) > 100 * arguments.max_grad_norm


def test_the_watcher_names_the_module_that_leaves_the_range_of_fp16():
    made = run("debugging/overflow.py", check=False)
    assert made.returncode and error("detected_inf") in made.stdout
    assert "model.layers.1.mlp.up_proj" in made.stdout.split("Detected inf/nan")[1]


def test_trainer_has_the_watcher_as_an_argument():
    assert [each.value for each in TrainingArguments("out", use_cpu=True, debug="underflow_overflow").debug] == [
        "underflow_overflow"
    ]


def test_the_same_model_in_bf16_stays_finite():
    assert run("debugging/overflow.py", "bf16").stdout.strip().endswith("finite")


def test_anomaly_detection_names_the_operator_and_a_smallest_number_clears_it():
    made = run("debugging/first_nan.py")
    assert error("nan_backward") in made.stdout
    assert "in length\n    return values.square().sum().sqrt()" in made.stderr
    assert "with the smallest number added: [0.0, 0.0, 0.0]" in made.stdout


def test_sampling_is_the_first_to_look_at_nan():
    model, ids = llama(), torch.arange(4)[None]
    model.lm_head.weight.data.fill_(float("nan"))
    assert error("probability") == raised(model.generate, ids, do_sample=True, max_new_tokens=1)
    model.generate(ids, do_sample=False, max_new_tokens=1)
    assert not model(input_ids=ids).logits.isfinite().any()


def test_a_scaler_without_a_gradient_says_so():
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    assert error("no_inf_checks") == raised(scaler.step, optimizer)


# Another loss


def test_the_first_module_that_differs_is_named_and_an_unchanged_model_agrees():
    saved = run("debugging/first_difference.py", "save").folder
    assert "modules agree" in run("debugging/first_difference.py", "compare", start=saved).stdout
    broken = run("debugging/first_difference.py", "compare", "--break-a-layer", start=saved).stdout
    assert "first difference: model.layers.1.input_layernorm," in broken


# Mistakes that raise nothing


def test_each_silent_mistake_is_found_by_its_test_and_gone_after_its_fix():
    said = run("debugging/silent.py").stdout.splitlines()
    found = {line.partition(":")[0]: line.rpartition("? ")[2] for line in said}
    assert found["dropout"] == "False then True"
    assert found["padding side"] == "False then True"
    assert found["labels"] == "2 then 0"
    stay, all_of_it = map(int, re.findall(r"\d+", found["optimizer without the body"]))
    assert stay > 0 == all_of_it


@pytest.fixture
def warned(caplog, monkeypatch):
    """What transformers logs."""
    warning_once.cache_clear()  # it speaks once in a process, and another test may have made it speak
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    return caplog


def test_generate_warns_where_padding_is_the_end_token_and_no_mask_is_given(warned):
    model = llama(pad_token_id=2, bos_token_id=1, eos_token_id=2)
    model.generate(torch.tensor([[5, 6], [7, 2]]), max_new_tokens=1)
    assert error("no_mask") in warned.text


def trained(model, rows, **options):
    arguments = TrainingArguments(
        "out", max_steps=1, logging_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True, **options
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer.state.log_history[0]


@pytest.fixture
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_empty_folder")
def test_rows_without_a_label_that_counts_give_nan_and_in_trainer_0():
    nothing = torch.full((4,), -100)
    assert torch.nn.functional.cross_entropy(torch.ones(4, 3), nothing).isnan()
    entry = trained(llama(), [{"input_ids": torch.arange(4), "labels": nothing}] * 8)
    assert (entry["loss"], entry["grad_norm"]) == (0, 0)


def test_the_collator_for_language_models_masks_every_pad_token(tokenizer):
    tokenizer.pad_token = "b"  # which the text has, too
    batch = DataCollatorForLanguageModeling(tokenizer, mlm=False)([tokenizer("a b a")])
    assert batch["labels"].tolist() == [[0, -100, 0]]


# Data and indices


def test_each_bad_index_is_named_by_the_cpu_and_by_the_three_limits():
    lines = dict(line.split(": ", 1) for line in run("debugging/on_the_cpu.py").stdout.splitlines())
    token, text, roberta, labels, unknown = (value for name, value in lines.items() if not name.startswith("none"))
    assert error("index") in token and "'token': '100, and the last is 99'" in token
    assert same("too_long", text) and "'position'" in text
    assert "index 514 is out of bounds" in roberta and "'position': '514, and the last is 513'" in roberta
    assert same("target", labels) and "'label': '2, and the last is 1'" in labels
    assert same("target", unknown.replace("-1", "2")) and "'label': '-1, and the first is 0'" in unknown
    assert lines["none"].strip() == lines["none, for a RoBERTa"].strip() == "runs"


@pytest.mark.usefixtures("in_empty_folder")
def test_messages_about_rows():
    model = BertForSequenceClassification(BertConfig(**SMALL))
    row = torch.arange(4)
    uneven = [{"input_ids": torch.arange(4 + n), "labels": 0} for n in range(8)]
    assert same("stack", raised(trained, model, uneven))
    assert error("no_loss") in raised(trained, model, [{"input_ids": row}] * 8)
    assert error("no_input_ids") == raised(trained, model, [{"text": "a", "label": 1}] * 8)
    assert error("no_columns") in raised(trained, model, datasets.Dataset.from_dict({"text": ["a"] * 8}))
    logits, labels = torch.ones(4, 3), torch.zeros(2, dtype=torch.long)
    assert error("batch_sizes") == raised(torch.nn.functional.cross_entropy, logits, labels)
    assert error("collate_none") == raised(data.default_collate, [None])


class Slow(data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, row):
        import time

        time.sleep(5)


class Lambda(data.Dataset):
    def __init__(self):
        self.row = lambda row: row

    def __len__(self):
        return 1


def test_messages_about_workers():
    assert same("worker_timeout", raised(list, data.DataLoader(Slow(), num_workers=1, timeout=1)))
    spawned = data.DataLoader(Lambda(), num_workers=1, multiprocessing_context="spawn")
    assert "Can't pickle local object" in error("worker_pickle")
    assert "Can't pickle local object" in raised(list, spawned)


# dtype, device, shape


def test_two_dtypes_meet_in_the_layer_that_the_test_names_and_no_more_after_the_fix():
    before, rare, message, after, none, dtype = run("debugging/dtypes.py").stdout.splitlines()
    assert "float32" in before and rare == "['lm_head.weight', 'lm_head.bias']"
    assert message == error("mat1_dtype")
    assert "float32" not in after and (none, dtype) == ("[]", "torch.bfloat16")


def test_messages_about_dtypes():
    functional, nn = torch.nn.functional, torch.nn
    assert error("input_bias") == raised(nn.Conv1d(2, 2, 1), torch.ones(1, 2, 3, dtype=torch.half))
    logits, labels = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.long)
    assert error("result_type") == raised(functional.binary_cross_entropy_with_logits, logits, labels)
    assert error("indices") == raised(nn.Embedding(4, 2), torch.ones(1))
    assert error("numpy_bf16") == raised(torch.ones(1, dtype=torch.bfloat16).numpy)
    assert error("numpy_grad") == raised(torch.ones(1, requires_grad=True).numpy)


def test_other_operators_word_a_mixture_of_dtypes_in_their_own_way():
    one, half = torch.ones(1, 2, 2), torch.ones(1, 2, 2, dtype=torch.float16)

    def put():
        half[torch.tensor([0])] = one

    without_bias = torch.nn.Linear(2, 2, bias=False)
    for words, call in {
        "expected m1 and m2 to have the same dtype": lambda: without_bias(half),
        "expected scalar type Float but found Half": lambda: torch.bmm(one, half),
        "Index put requires the source and destination dtypes match": put,
    }.items():
        assert words in raised(call) and words in " ".join(MESSAGES_PAGE.read_text().split())


def test_messages_about_devices_and_shapes():
    meta = torch.nn.Linear(2, 2, device="meta")
    assert error("meta_device") == raised(meta, torch.ones(1, 2))
    assert error("meta_copy") == raised(meta.to, "cpu")
    assert error("mat1_shapes") == raised(torch.nn.Linear(3, 2), torch.ones(1, 2))
    assert error("size_mismatch") == raised(torch.add, torch.ones(3), torch.ones(4))


# Tokenizers


@pytest.fixture
def tokenizer():
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=words)
    made.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return made


def test_messages_about_padding(tokenizer):
    rows = {"input_ids": [[1, 2], [3, 0]], "labels": [[1, 2], [3]]}
    assert error("unable_tensor") == raised(BatchEncoding, rows, tensor_type="pt")
    assert error("no_pad_token") == raised(tokenizer, ["a", "a b"], padding=True)
    classifier = LlamaForSequenceClassification(LlamaConfig(**SMALL))
    two_rows = torch.ones(2, 3, dtype=torch.long)
    assert error("no_pad_id") == raised(classifier, two_rows)
    classifier.config.pad_token_id = 0  # the fix
    assert classifier(two_rows).logits.shape == (2, 2)


def test_a_chat_template_returns_a_dictionary_which_generate_takes_apart(tokenizer):
    asked = [{"role": "user", "content": "a b"}]
    inputs = tokenizer.apply_chat_template(asked, return_tensors="pt")
    model = llama()
    assert raised(model.generate, inputs, max_new_tokens=1).strip() == "AttributeError:"
    assert "must be Tensor, not BatchEncoding" in raised(model, inputs)
    ids = tokenizer.apply_chat_template(asked, return_tensors="pt", return_dict=False)
    assert model.generate(**inputs, max_new_tokens=1).shape == model.generate(ids, max_new_tokens=1).shape == (1, 3)


def test_version_5_saves_a_class_that_version_4_lacks_and_reads_the_name_of_version_4(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    assert json.loads(config.read_text())["tokenizer_class"] == "TokenizersBackend"
    config.write_text(config.read_text().replace("TokenizersBackend", "PreTrainedTokenizerFast"))
    assert AutoTokenizer.from_pretrained(tmp_path)("a b")["input_ids"] == [0, 1]


def test_full_determinism_asks_for_deterministic_kernels_and_waits_for_each():
    program = """
import os, torch
from transformers import enable_full_determinism
enable_full_determinism(0)
print(torch.are_deterministic_algorithms_enabled(), os.environ["CUDA_LAUNCH_BLOCKING"])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.split() == ["True", "1"], ended.stderr
    assert not TrainingArguments("out", use_cpu=True).full_determinism


# Gradients


def test_messages_about_gradients():
    leaf = torch.ones(2, requires_grad=True)
    changed = torch.exp(leaf)
    changed.add_(1)
    assert error("inplace") == raised(changed.sum().backward)
    torch.exp(leaf).add(1).sum().backward()  # the fix
    assert error("leaf_inplace") == raised(leaf.add_, 1)
    once = leaf.square().sum()
    once.backward()
    assert error("backward_twice") == raised(once.backward)
    assert error("scalar_outputs") == raised((leaf * 2).backward)
    (leaf * 2).mean().backward()  # the fix
    assert error("empty_list") == raised(torch.optim.AdamW, [])


def test_the_scheduler_before_the_optimizer_warns_and_after_it_does_not(recwarn):
    def steps(first, second):
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1)
        parts = {"optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}
        parts[first].step()
        parts[second].step()
        return [str(each.message) for each in recwarn.list if "lr_scheduler" in str(each.message)]

    assert steps("optimizer", "scheduler") == []
    assert error("scheduler_first").partition(": ")[2] in steps("scheduler", "optimizer")[0]


# Checkpoints


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    llama().save_pretrained(folder)
    return folder


def test_a_new_head_is_reported_as_missing_by_name(checkpoint, warned):
    _, found = LlamaForSequenceClassification.from_pretrained(checkpoint, output_loading_info=True)
    assert list(found["missing_keys"]) == ["score.weight"]
    said = re.sub(r"\x1b\[\d+m", "", warned.text)
    for line in error("load_report").splitlines():
        assert line.rstrip() in said


def test_another_number_of_labels_is_an_error_until_it_is_allowed(tmp_path):
    BertForSequenceClassification(BertConfig(**SMALL, num_labels=3)).save_pretrained(tmp_path)
    assert error("mismatched") == raised(BertForSequenceClassification.from_pretrained, tmp_path, num_labels=2)
    model = BertForSequenceClassification.from_pretrained(tmp_path, num_labels=2, ignore_mismatched_sizes=True)
    assert model.classifier.out_features == 2


def test_messages_of_load_state_dict():
    linear = torch.nn.Linear(2, 2)
    assert error("state_dict_size") == raised(linear.load_state_dict, torch.nn.Linear(3, 2).state_dict())
    wrapped = {f"module.{name}": tensor for name, tensor in linear.state_dict().items()}
    assert error("state_dict_keys") == raised(linear.load_state_dict, wrapped).strip()


def test_a_pointer_of_git_lfs_and_half_a_file_are_not_whole_headers(checkpoint, tmp_path):
    whole = (checkpoint / "model.safetensors").read_bytes()
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    for name, content in {
        "header_large": b"version https://git-lfs.github.com/spec/v1\noid sha256:abc",
        "header_incomplete": whole[: len(whole) // 2],
    }.items():
        (tmp_path / "model.safetensors").write_bytes(content)
        assert error(name) == raised(LlamaForCausalLM.from_pretrained, tmp_path)


def test_tied_weights_cannot_be_saved_as_a_plain_dictionary(tmp_path):
    from safetensors.torch import save_file

    weight = torch.ones(2, 2)
    words = error("shared_tensors").partition(" [{")[0]  # a set, in any order
    assert words in raised(save_file, {"a": weight, "b": weight}, tmp_path / "x.safetensors")


class OfMyProgram:
    pass


def test_torch_load_refuses_an_object_of_another_class_until_the_class_or_the_file_is_trusted(tmp_path):
    torch.save({"state": OfMyProgram()}, tmp_path / "state.pt")
    assert re.search(r"Weights only load failed.*GLOBAL \S+OfMyProgram", raised(torch.load, tmp_path / "state.pt"), re.S)
    assert torch.load(tmp_path / "state.pt", weights_only=False)
    with torch.serialization.safe_globals([OfMyProgram]):
        assert torch.load(tmp_path / "state.pt")
    assert torch.serialization.add_safe_globals


def test_messages_of_a_checkpoint_that_is_not_for_this_library(checkpoint, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama5"}))
    assert error("unknown_architecture") in raised(AutoModelForCausalLM.from_pretrained, tmp_path)
    assert error("no_tokenizer") in raised(AutoTokenizer.from_pretrained, checkpoint)
    assert error("no_connection") in raised(AutoModelForCausalLM.from_pretrained, "nobody/has-this")
    assert error("import_name") in raised(exec, "from transformers import AdamW")


# Installation


def test_the_environment_is_told_in_a_line_each():
    said = run("debugging/environment.py", "json", "no_such_extension").stdout
    assert f"torch {torch.__version__}" in said
    assert "json 2.0.9 imports" in said
    assert "no_such_extension: No module named 'no_such_extension'" in said


@pytest.mark.parametrize(
    ("capability", "fits"), [((8, 9), True), ((12, 1), True), ((10, 3), True), ((7, 0), False), ((11, 0), False)]
)
def test_kernels_of_a_major_number_run_on_later_minor_ones(capability, fits, monkeypatch):
    made = load("debugging/environment.py")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"])
    assert f" {'runs' if fits else 'does NOT run'} the kernels" in made.architecture()


def test_intermediate_code_runs_on_a_gpu_that_is_newer(monkeypatch):
    made = load("debugging/environment.py")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "compute_90"])
    for capability, said in (((12, 0), "runs"), ((8, 0), "does NOT run")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert f" {said} the kernels" in made.architecture()


def test_pytorch_words_a_gpu_without_kernels_as_on_the_page(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    for name, answer in {"device_count": 1, "get_device_capability": (8, 6), "get_device_name": "NVIDIA RTX A6000",
                         "get_arch_list": ["sm_37", "sm_50", "sm_60", "sm_70"]}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *device, answer=answer: answer)
    with pytest.warns(UserWarning, match=re.escape(error("not_compatible"))):
        torch.cuda._check_cubins()


@without_cuda
def test_the_cpu_build_says_that_it_has_no_cuda():
    assert error("not_compiled") == raised(torch.ones(1).cuda)
    assert (
        "has no CUDA: it was installed as the CPU build"
        in run("debugging/environment.py", "json", "no_such_extension").stdout
    )


def test_an_extension_without_the_toolkit_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    assert error("cuda_home") == raised(cpp_extension._join_cuda_home, "bin")


def test_pytorch_words_the_mismatch_as_on_the_page():
    before, middle, after = cpp_extension.CUDA_MISMATCH_MESSAGE.replace("compilePyTorch", "compile PyTorch").split("%s")
    for part in (before, middle, after):
        assert part in error("cuda_mismatch")


# The tools


def test_the_callback_of_trainer_prints_operators_and_writes_a_trace():
    made = run("debugging/profile_trainer.py")
    assert "aten::mm" in made.stdout
    events = json.loads((made.folder / "trace.json").read_text())["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert len(steps) == 3


def test_the_log_names_the_length_that_makes_torch_compile_again_and_padding_clears_it():
    each = run("debugging/torch_logs.sh", "recompiles.py", beside=["debugging/recompiles.py"]).stdout
    assert each.count("Recompiling function step") == 3
    each = re.sub(r"\S*/recompiles\.py", "recompiles.py", each)
    assert all(line in each for line in output("recompiles").splitlines())
    padded = run("debugging/torch_logs.sh", "recompiles.py", "padded", beside=["debugging/recompiles.py"]).stdout
    assert padded.strip() == "compiled once"
    assert run("debugging/recompiles.py").returncode == 0


# The tools on a program with a known fault


@pytest.fixture(scope="module")
def profiled():
    return run("debugging/profile_step.py")


def test_the_table_of_the_profiler_has_the_columns_of_the_page_and_as_many_calls(profiled):
    shown = output("profiler_table").splitlines()
    header = next(line for line in profiled.stdout.splitlines() if "Self CPU %" in line)
    assert [name.strip() for name in re.split(r" {2,}", shown[0].strip())] == [
        name for name in re.split(r" {2,}", header.strip()) if name != "CPU time avg"
    ]
    events = json.loads((profiled.folder / "trace.json").read_text())["traceEvents"]
    for line in shown[2:]:  # which rows are on top depends on the load of a machine, how often each is called does not
        name, *_, calls = line.split()
        assert sum(each.get("name", "").startswith(name.removesuffix("...")) for each in events) >= int(calls)
        if "..." not in name:
            assert sum(each.get("name") == name and each.get("cat") == "cpu_op" for each in events) == int(calls)


def test_the_trace_is_read_by_part_and_says_where_the_longest_gap_is(profiled):
    said = run("debugging/read_trace.py", "trace.json", start=profiled.folder).stdout
    assert re.sub(r" *\d+%| in \d+%|[\d.]+ ms", "", said).strip() == re.sub(r" *\d+%| in \d+%|[\d.]+ ms", "", output("trace"))


def event(category, name, start, length):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}


STEP = [event("user_annotation", "data", 0, 400), event("user_annotation", "forward", 400, 600)]
OPERATORS = [event("cpu_op", "aten::linear", 450, 500), event("cpu_op", "aten::mm", 500, 100)]


def test_a_trace_of_a_cpu_is_read_by_its_operators_and_one_of_a_gpu_by_its_kernels():
    read = load("debugging/read_trace.py").read
    shares, busy, gap, gpu = read(STEP + OPERATORS)
    assert (shares, busy, gap, gpu) == ({"data": 0.4, "forward": 0.6}, 0.5, (0.45, "data"), False)
    _, busy, gap, gpu = read([*STEP, *OPERATORS, event("kernel", "gemm", 100, 100), event("kernel", "gemm", 150, 250)])
    assert (busy, gap, gpu) == (0.3, (0.6, "forward"), True)


@pytest.fixture(scope="module")
def snapshot():
    return run("debugging/snapshot.py")


def test_a_snapshot_is_read_to_its_peak_and_the_lines_that_allocated_it(snapshot):
    said = run("debugging/read_snapshot.py", "memory.pickle", start=snapshot.folder).stdout.splitlines()
    shown = output("snapshot").splitlines()
    assert without_numbers(said[0]) == without_numbers(shown[0])
    assert said[0].split(",")[0] == shown[0].split(",")[0]  # what the step begins with is the same everywhere
    named = {line.split("MiB")[1].strip() for line in said[1:]}
    assert {line.split("MiB")[1].strip() for line in shown[1:3]} <= named


def test_a_snapshot_of_a_step_begins_with_weights_and_moments_and_ends_with_what_is_held(snapshot):
    with open(snapshot.folder / "memory.pickle", "rb") as file:
        found = pickle.load(file)
    device = len(found["device_traces"]) - 1
    before, peak, until, alive = load("debugging/read_snapshot.py").replay(found, device)
    assert before > 0 and peak > before and 0 < until <= len(found["device_traces"][device])
    parameters = sum(each.numel() for each in llama_of_the_snapshot().parameters())
    assert before >= 3 * 4 * parameters  # weights and two moments, in fp32
    assert held_at_the_end(found, device) == before + sum(signed(each) for each in found["device_traces"][device])


def signed(event):
    return {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]


def held_at_the_end(found, device):
    blocks = [block for each in found["segments"] if each["device"] == device for block in each["blocks"]]
    return sum(block["size"] for block in blocks if block["state"] == "active_allocated")


def llama_of_the_snapshot():
    config = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
    return LlamaForCausalLM(LlamaConfig(**config))


def test_a_snapshot_of_a_gpu_is_replayed_with_what_was_there_before_and_names_file_and_line():
    frames = [
        {"filename": "/lib/torch/nn/linear.py", "line": 1, "name": "forward"},
        {"filename": "project/me/train.py", "line": 7, "name": "step"},
    ]
    events = [("alloc", 1, 30), ("alloc", 2, 50), ("free_requested", 1, 30), ("free_completed", 1, 30), ("free_completed", 9, 5)]
    trace = [{"action": action, "addr": address, "size": size, "frames": frames} for action, address, size in events]
    blocks = [{"size": 150, "state": "active_allocated"}, {"size": 8, "state": "inactive"}]
    reader = load("debugging/read_snapshot.py")
    before, peak, until, alive = reader.replay(
        {"device_traces": [trace], "segments": [{"device": 0, "blocks": blocks}]}, 0
    )
    assert (before, peak, until, sorted(alive)) == (105, 185, 2, [1, 2])
    assert reader.line_of(alive[2]) == "me/train.py(7): step"


def hang(tool):
    return run("debugging/debug_stuck.sh", tool, beside=["debugging/stuck.py"])


def test_detail_tells_what_each_rank_calls_and_gets_the_other_side_of_a_barrier_wrong():
    said = hang("detail").stdout  # as a whole: ranks write a text and its line end apart, so two lines may run together
    for shown in output("detail").splitlines():
        assert said.count(shown.removesuffix("…").strip()) == 1, shown
    assert "but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0" in said


def test_the_flight_recorder_names_the_collective_in_which_the_ranks_differ():
    made = hang("flight")
    said = re.sub(r"(at )\S*/(?=stuck\.py)", r"\1", made.stderr)
    for line in output("flight").splitlines():
        assert line in said, line
    for rank in (0, 1):
        with open(made.folder / "flight" / f"rank_{rank}", "rb") as file:
            entries = pickle.load(file)["entries"]
        assert [entry["profiling_name"] for entry in entries] == [f"gloo:{name}" for name in drawn.collectives(rank)[:4]]


def test_the_stacks_of_py_spy_are_lines_of_the_program():
    lines = (SNIPPETS / "debugging" / "stuck.py").read_text().splitlines()
    frames = re.findall(r"^    (\w+|<module>) \(stuck\.py:(\d+)\)$", output("py_spy"), re.M)
    calls = {"average_gradients": "dist.all_reduce(", "save_checkpoint": "dist.barrier(", "<module>": "train("}
    assert {name for name, _ in frames} == {"average_gradients", "save_checkpoint", "train", "<module>"}
    for name, number in frames:
        assert calls.get(name, "(group") in lines[int(number) - 1], (name, number)
    assert [dict(frames)[name] for name in ("average_gradients",)] == re.findall(r"average_gradients at stuck.py:(\d+)", output("flight"))


# What readers paste


MESSAGES = yaml.safe_load((ROOT / "tests" / "data" / "error_messages.yml").read_text())


def test_every_message_of_the_page_is_among_those_that_the_search_must_find():
    pasted = " ".join(without_numbers(" ".join(each["message"].split())) for each in MESSAGES)
    for name, message in messages("debugging").items():
        first = without_numbers(" ".join(message.split()))[:40]
        fix = f'tests/data/error_messages.yml: add "- entry: page#anchor" and the message of snippets/debugging/messages.txt: {name}'
        assert first in pasted, fix
