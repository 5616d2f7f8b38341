"""Nonsense is one line with the nearest sense, and never a traceback or a confident answer. No torch."""

import json
import os
import signal
import subprocess
import sys

import pytest
from built import ROOT

import dryrun
from dryrun import Cluster, Generation, Job
from dryrun.cost import timing
from dryrun.cost.setting import Setting
from dryrun.door import command, web
from dryrun.models import config_file

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
         "num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000, "max_position_embeddings": 4096}  # fmt: skip
TRAIN = ("train", "qwen3-0.6b", "--length", "256")


def refused(capsys, *arguments):
    """The one line that the command says before it ends with status 2."""
    try:
        status = command.main(list(arguments))
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def written(tmp_path, **fields):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **fields}))
    return str(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantization_config": [4]}, '"quantization_config" is'),
        ({"quantization_config": "awq"}, "must be an object"),
        ({"num_key_value_heads": 7}, '"num_key_value_heads" is 7, and must divide "num_attention_heads", 16'),
        ({"num_key_value_heads": 0}, '"num_key_value_heads" is 0, and must be 1 or more'),
        ({"head_dim": 0}, '"head_dim" is 0'),
        ({"max_position_embeddings": -5}, '"max_position_embeddings" is -5'),
        ({"tie_word_embeddings": "false"}, "must be true or false"),
        ({"hidden_size": float("inf")}, '"hidden_size" is inf'),
        ({"rope_theta": float("nan")}, '"rope_theta" is nan'),
    ],
)
def test_a_field_that_no_model_has_is_named(tmp_path, capsys, fields, message):
    line = refused(capsys, "train", written(tmp_path, **fields), "--gpu", "l4")
    assert message in line and "config.json" in line
    assert message in web.in_words(json.dumps({**LLAMA, **fields}))["error"]


def test_a_time_step_may_be_without_limit(tmp_path):
    config_file.parsed(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}), tmp_path)


def test_a_number_of_thousands_of_digits_is_named_with_its_file(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA).replace("1024", "9" * 5000))
    assert str(path) in refused(capsys, "train", str(path), "--gpu", "l4")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    path.chmod(0)
    assert "it cannot be read" in refused(capsys, "train", str(path), "--gpu", "l4")


def test_a_file_whose_reading_fails_is_named(tmp_path, capsys, monkeypatch):
    path = written(tmp_path)
    monkeypatch.setattr(config_file.Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert refused(capsys, "train", path, "--gpu", "l4").endswith("it cannot be read: Permission denied")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--gpu", "l4", "--tokens", "1,5"), "a comma stands between thousands: write 1.5"),
        (("--gpu", "l4", "--tokens", "1e-300"), "at least 1"),
        (("--gpu", "l4", "--tokens", "1e300"), "at most 1e+18"),
        (("--gpu", "l4", "--tokens", "1e9", "--epochs", "1e300"), "at most a million times"),
        (("--gpu", "l4", "--tokens", "1e9", "--price", "1e308"), "the money for one GPU and hour"),
        (("--gpu", "l4", "--gpus", "2", "--link", "1e-300"), "give GB/s from 0.01"),
        (("--gpu", "l4", "--gpus", "2", "--link", "1e300"), "give GB/s from 0.01"),
        (("--gpu", "l4", "--gpus", "100000000"), "give 1000000 or fewer"),
        (("--gpu", ""), "it is empty: is the variable that holds the name set?"),
        (("--fail-unless", "fits"), "it needs a GPU to answer for"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line(capsys, options, message):
    assert message.replace("1000000", "1,000,000") in refused(capsys, *TRAIN, *options)


def test_commas_between_thousands_are_read(capsys):
    assert command.main([*TRAIN, "--gpu", "l4", "--tokens", "1,500,000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 1_500_000


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: dryrun.predict("llama3-8b", "l4"), "is no question: give a Job or a Generation"),
        (lambda: dryrun.predict(Job("gpt2"), "l4"), "is no Cluster"),
        (lambda: dryrun.plan(Generation("llama3-8b"), Cluster("l4")), "is no question: give a Job"),
        (lambda: dryrun.trace("gpt2"), "is no question"),
        (lambda: dryrun.compare(Job("gpt2"), Cluster("l4"), "x"), "seconds='x': give a number"),
        (lambda: Job("gpt2", checkpointing=2), "checkpointing=2: give True or False"),
        (lambda: Job("gpt2", compiled="no"), "compiled='no'"),
        (lambda: Job(LLAMA), "a dict is no name and no path"),
        (lambda: Cluster(["l4"]), "give a name, such as 'rtx-4090'"),
        (lambda: Cluster("l4", gpus=2, link=[1]), "link=[1]: give GB/s"),
        (lambda: Cluster("l4", host_memory_gb="64"), "host_memory_gb='64': give GB above 0"),
        (lambda: dryrun.predict(Generation("qwen3-8b"), Cluster("m4-max", gpus=2)), "a Mac has one GPU"),
        (lambda: Setting("l4", gpus=8, tensor=3), "tensor=3: it does not divide gpus=8"),
        (lambda: Setting("l4", gpus=8, tensor=4, pipeline=4), "they do not divide gpus=8"),
        (lambda: Setting("l4", gpus=2, strategy="fsdp3"), "strategy='fsdp3' is not known, did you mean 'fsdp2'?"),
        (lambda: timing.training_step("gpt2", 1, 512).on("rtx-4090", optimizer="adamww"), "optimizer='adamww' is not known, did you mean 'adamw'?"),
        (lambda: timing.training_step("gpt2", 1, 512).on("rtx-4090", gpus=2, strategy="fsdp3"), "strategy='fsdp3' is not known"),
        (lambda: dryrun.model("llama:layers=24,layers=12,hidden=2048,heads=16,ffn=5504,vocab=32000"), "layers is said twice"),
        (lambda: dryrun.predict(Job("clip-l14-vision"), Cluster("l4")), "has no loss of its own"),
    ],
)
def test_from_python_nonsense_is_a_value_error_of_one_line(ask, message):
    with pytest.raises(ValueError) as raised:
        ask()
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(("arguments", "message"), [([], "is no question"), (["foo"], "'foo' is no question")])
def test_a_page_that_asks_nothing_is_answered_in_words(arguments, message):
    assert message in web.ask(arguments)["error"]


def test_an_unknown_name_is_one_short_line():
    with pytest.raises(ValueError, match="`dryrun models` lists all names") as raised:
        dryrun.model("zzzzzzzz")
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("train", "qwen3-8b", "--gpu", "l4", "--length", "512", "--fail-unless", "fits"), 1),
        (("train", "qwen3-0.6b", "--gpu", "h100-sxm5", "--length", "512", "--fail-unless", "fits"), 0),
        (("infer", "llama3-70b", "--gpu", "t4", "--fail-unless", "may-fit"), 1),
        (("infer", "qwen3-0.6b", "--gpu", "t4", "--fail-unless", "fits"), 0),
        (("plan", "llama3-70b", "--gpu", "t4", "--gpus", "2", "--length", "512", "--fail-unless", "fits"), 1),
    ],
)
def test_a_gate_ends_with_1_where_a_question_is_answered_otherwise(capsys, arguments, status):
    assert command.main([*arguments, "--json"]) == status
    said = capsys.readouterr()
    json.loads(said.out)  # the answer is printed all the same
    assert ("does not fit" in said.err) is bool(status)


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "dryrun", *arguments], capture_output=True, text=True, cwd=ROOT, timeout=300, **options)


def test_a_full_disk_and_a_terminal_of_ascii_are_no_tracebacks():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "dryrun", "gpus"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=300)
    assert (done.returncode, done.stderr) == (1, "error: the answer cannot be written: No space left on device\n")
    done = run("gpus", "l4", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "l4" in done.stdout


def test_an_interrupt_while_the_command_imports_prints_no_traceback():
    started = subprocess.Popen([sys.executable, "-X", "importtime", "-m", "dryrun", "gpus"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    for line in started.stderr:  # which says what is imported: `dryrun.__init__` has begun
        if "config_file" in line:
            break
    started.send_signal(signal.SIGINT)
    _, error = started.communicate(timeout=300)
    assert "Traceback" not in error and started.returncode in (-signal.SIGINT, 130, 0)
