"""`dryrun train`: what it prints is the trace, and an error says what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, BertConfig, BertForMaskedLM, LlamaConfig, logging

from dryrun.door import command
from dryrun.models import config_file
from dryrun.tracing import tracing

ROOT = Path(tracing.__file__).parents[1]
SMALL = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=8, vocab_size=8000)
LLAMA = LlamaConfig(**SMALL, num_key_value_heads=2, architectures=["LlamaForCausalLM"])


@pytest.fixture
def folder(tmp_path):
    LLAMA.save_pretrained(tmp_path)
    return tmp_path


def write(folder, text):
    path = folder / "config.json"
    path.write_text(text, encoding="utf-8")
    return path


def table(printed):
    """{label: number} of the lines that end with one."""
    rows = {}
    for line in printed.splitlines():
        label, _, number = line.strip().rpartition(" ")
        if number.replace(".", "").replace(",", "").isdecimal():
            rows.setdefault(label.strip(), []).append(float(number.replace(",", "")))
    return rows


def refused(capsys, *arguments):
    """The one line that the command says before it ends with status 2."""
    assert command.main(list(arguments)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_cold_start_prints_what_the_trace_holds(folder):
    call = [sys.executable, "-m", "dryrun", "train", str(folder), "--batch", "4", "--length", "1024", "--checkpointing"]
    done = subprocess.run(call, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    step = tracing.training_step(
        AutoModelForCausalLM, LLAMA, 4, 1024, dtype=torch.bfloat16, activation_checkpointing=True
    )
    printed = table(done.stdout)
    for category, size in step.peak_by_category.items():
        assert printed[category] == [pytest.approx(size / 2**30, abs=0.006)], category
    flops = step.flops["forward"] + step.flops["backward"]
    assert printed["total"] == [pytest.approx(step.peak_gib, abs=0.006), pytest.approx(flops / 1e12, abs=0.006)]
    assert "LlamaForCausalLM" in done.stdout


def test_the_class_is_that_of_the_configuration_or_its_language_model(tmp_path):
    config = BertConfig(**SMALL, architectures=["BertForMaskedLM"])
    assert config_file.class_of(config, tmp_path) is BertForMaskedLM
    config.architectures = ["BertForQuestionAnswering"]
    assert config_file.class_of(config, tmp_path).__name__ == "BertLMHeadModel"
    config.architectures = ["pipeline"]  # a name of transformers, and no model
    assert config_file.class_of(config, tmp_path).__name__ == "BertLMHeadModel"


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"model_type": "llama",\n "hidden_size": }', "config.json:2: this is no JSON"),
        ("[]", '"model_type" is missing: give the config.json of a transformers model'),
        ('{"model_type": "llamaa"}', "the nearest that it has is 'llama'"),
        ('{"model_type": "mimo"}', "the nearest that it has is 'mimo_v2_flash'"),
        ('{"model_type": "llama", "hidden_size": "big"}', "transformers refuses these values"),
        ('{"model_type": "vit"}', "'vit' is no language model"),
        ('{"model_type": "llama"}', '"num_hidden_layers" is missing, and transformers takes 32 for it'),
        ('{"model_type": "mistral3", "text_config": null, "num_hidden_layers": 3, "hidden_size": 64}', '"num_hidden_layers" of "text_config" is 3, and transformers takes'),
        (json.dumps(SMALL | {"model_type": "llama", "max_position_embeddings": 64}), "has 64 positions: take 64 or fewer"),
    ],
)
def test_a_config_that_cannot_be_traced_is_named_with_what_to_do(tmp_path, capsys, text, message):
    path = write(tmp_path, text)
    line = refused(capsys, "train", str(path), "--length", "128")
    assert str(path) in line and message in line


def test_a_remote_class_of_the_configuration_is_not_executed(tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    values = json.loads(LLAMA.to_json_string()) | {"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}  # fmt: skip
    config = config_file.read_config(values, write(tmp_path, json.dumps(values)))
    assert config_file.class_of(config, tmp_path).__module__.startswith("transformers.")


def test_what_transformers_logs_after_a_config_file_was_read_is_the_callers(tmp_path):
    for level in (logging.INFO, logging.WARNING):
        logging.set_verbosity(level)
        config_file.read_config(json.loads(LLAMA.to_json_string()), write(tmp_path, LLAMA.to_json_string()))
        assert logging.get_verbosity() == level
