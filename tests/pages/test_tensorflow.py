"""docs/tensorflow.md: the last transformers with TensorFlow, in an environment apart, and the way out of it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields

import programs
import pytest
import transformers
from built import ROOT
from programs import SNIPPETS, run, shown_message
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

FOLDER = SNIPPETS / "tensorflow"
PAGE = ROOT / "docs" / "tensorflow.md"
# In one process of the old environment: each trap of the page, and what came of it.
TRAPS = """
import json, logging
from transformers import BertConfig, BertForSequenceClassification, TFBertForSequenceClassification
from transformers import GPT2Config, GPT2LMHeadModel, TFGPT2LMHeadModel, load_tf2_model_in_pytorch_model
from transformers import T5Config, T5ForConditionalGeneration, TFT5ForConditionalGeneration
import keras, numpy as np, tensorflow as tf, torch

SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100)
found = {}


def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def difference(old, new, **inputs):
    old.build_in_name_scope()
    new, report = load_tf2_model_in_pytorch_model(new.eval(), old, output_loading_info=True)
    expected = old(**{name: tf.constant(value) for name, value in inputs.items()}, training=False).logits.numpy()
    with torch.inference_mode():
        logits = new(**{name: torch.tensor(value) for name, value in inputs.items()}).logits.numpy()
    return float(abs(logits - expected).max() / abs(expected).max()), report["missing_keys"]


ids = np.random.default_rng(0).integers(5, 100, (2, 8))
gpt2 = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100)
t5 = T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, vocab_size=100, decoder_start_token_id=0)
found["gpt2"] = difference(TFGPT2LMHeadModel(gpt2), GPT2LMHeadModel(gpt2), input_ids=ids)
found["t5"] = difference(TFT5ForConditionalGeneration(t5), T5ForConditionalGeneration(t5), input_ids=ids,
                         decoder_input_ids=ids)
bert = TFBertForSequenceClassification(BertConfig(**SMALL))
bert.build_in_name_scope()
bert.save_pretrained("h5")
bert.save_pretrained("safetensors", safe_serialization=True)
lost, report = BertForSequenceClassification.from_pretrained("h5", from_tf=True, output_loading_info=True)
found["from_tf"] = [sorted({each.device.type for each in lost.parameters()}), sorted(report["missing_keys"])]
found["meta"] = said(lambda: lost.save_pretrained("lost"))
found["optimizer"] = said(lambda: bert.compile(optimizer=keras.optimizers.Adam(1e-3)))
found["legacy"] = said(lambda: bert.compile(optimizer=tf.keras.optimizers.Adam(1e-3)))
adam = tf.keras.optimizers.Adam()
found["adam"] = [float(adam.learning_rate), adam.epsilon]
resolver = tf.distribute.cluster_resolver.TPUClusterResolver
found["tpu_name"] = said(resolver)
found["tpu_missing"] = said(lambda: resolver.connect(tpu="local"))
json.dump(found, open("found.json", "w"))
"""
WITHOUT_TF_KERAS = """
import sys
sys.modules["tf_keras"] = None
from transformers import TFBertModel
"""
TENSORFLOW_FIRST = """
from tensorflow.keras.optimizers import Adam
from transformers import TFBertModel
print(Adam.__module__)
"""
INPUT_OF_KERAS_3 = """
from tensorflow.keras.layers import Input
from transformers import BertConfig, TFBertModel
small = BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=100)
try:
    TFBertModel(small)(Input(shape=(8,), dtype="int32"))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def packages():
    return programs.packages("tensorflow")  # in place of the virtual environment that the page makes


def message(name):
    return shown_message("tensorflow", name)


def old(code, folder):
    """Runs code in the old environment."""
    environment = os.environ | {"PYTHONPATH": packages(), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def traps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traps")
    done = old(TRAPS, folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads((folder / "found.json").read_text()), done.stderr


def in_old(name):
    return run(name, environment={"PYTHONPATH": packages()})


# The programs


def test_the_lock_holds_the_last_transformers_with_tensorflow():
    lock = (ROOT / "requirements" / "tensorflow.txt").read_text()
    assert re.search(r"^transformers==4\.57\.", lock, re.M)
    assert re.search(r"^tensorflow-cpu==(\S+)", lock, re.M)[1] == re.search(r"^tf-keras==(\S+)", lock, re.M)[1]
    assert not re.search(r"^tensorflow==", lock, re.M)
    for pinned in re.findall(r'"(\S+==\S+)"', (FOLDER / "install.sh").read_text()):
        assert pinned in lock or "and-cuda" in pinned


def test_prompts_padded_to_one_length_share_a_compilation_and_give_the_tokens_of_eager_generation():
    assert in_old("tensorflow/generate.py").stdout.splitlines() == [
        f"prompt of {length}: same tokens True, compiled {times}" for length, times in [(16, 1), (13, 1), (10, 1), (17, 2)]
    ]


def test_a_compiled_call_warns_of_padding_on_the_right_at_each_tracing():
    assert in_old("tensorflow/generate.py").stderr.count("right-padding was detected") == 2


def test_keras_fit_learns_falls_back_without_a_tpu_and_gives_the_same_losses_compiled():
    fallback, replicas, compiled, plain = in_old("tensorflow/fit.py").stdout.splitlines()
    assert fallback == "no TPU (NotFoundError), so the default strategy"
    assert replicas == "replicas 1"
    losses = [[float(loss) for loss in re.findall(r"\d\.\d+", line)] for line in (compiled, plain)]
    assert len(losses[0]) == 3 and losses[0][-1] < losses[0][0]
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


def test_transformers_5_opens_what_tensorflow_trained_and_answers_the_same():
    converted = in_old("tensorflow/to_pytorch.py")
    assert float(re.search(r"largest logit ([\d.]+)", converted.stdout)[1]) > 0.1
    assert (converted.folder / "trained_in_tensorflow" / "tf_model.h5").exists()
    opened = run("tensorflow/open_in_v5.py", start=converted.folder)
    assert opened.stdout.startswith("transformers 5 answers as TensorFlow did")


def test_the_second_half_fails_where_the_answers_differ(tmp_path):
    converted = in_old("tensorflow/to_pytorch.py").folder
    model = AutoModelForSequenceClassification.from_pretrained(converted / "in_pytorch")
    model.classifier.weight.data += 0.1
    (tmp_path / "in_pytorch").mkdir()
    model.save_pretrained(tmp_path / "in_pytorch")
    (tmp_path / "in_pytorch" / "expected.npz").write_bytes((converted / "in_pytorch" / "expected.npz").read_bytes())
    failed = run("tensorflow/open_in_v5.py", start=tmp_path, check=False)
    assert failed.returncode and "Not equal to tolerance" in failed.stderr


def test_the_picture_names_the_files_that_the_programs_leave():
    folder = in_old("tensorflow/to_pytorch.py").folder
    picture = (FOLDER / "way.txt").read_text()
    for path in ("trained_in_tensorflow/tf_model.h5", "in_pytorch/model.safetensors", "in_pytorch/expected.npz"):
        assert (folder / path).exists() and path.split("/")[1] in picture


# What looks right and loses the weights


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_copied_weights_of_a_decoder_and_of_an_encoder_decoder_agree(traps, name):
    difference, missing = traps[1][name]
    assert difference < 1e-4
    assert "lm_head.weight" in missing, "reported as new, and tied all the same"


def test_from_tf_reports_all_weights_and_leaves_them_without_values(traps):
    assert traps[1]["from_tf"] == [["meta"], []]
    assert traps[1]["meta"] == message("meta")


def test_a_safetensors_file_of_tensorflow_gives_random_weights_in_version_5(traps):
    first, report = AutoModelForSequenceClassification.from_pretrained(traps[0] / "safetensors", output_loading_info=True)
    second = AutoModelForSequenceClassification.from_pretrained(traps[0] / "safetensors")
    assert "classifier.weight" in report["missing_keys"] and "classifier/kernel:0" in report["unexpected_keys"]
    assert not (first.classifier.weight == second.classifier.weight).any()
    for line in message("load_report").splitlines():
        name, status = map(str.strip, line.split("|"))
        assert name in report[{"UNEXPECTED": "unexpected_keys", "MISSING": "missing_keys"}[status]]


# Messages


def test_the_messages_of_version_5(traps):
    with pytest.raises(ImportError) as caught:
        from transformers import TFBertModel  # noqa: F401
    assert str(caught.value).startswith(message("no_class").partition(": ")[2])
    for more in ({}, {"from_tf": True}):
        with pytest.raises(OSError) as caught:
            AutoModelForSequenceClassification.from_pretrained(traps[0] / "h5", **more)
        expected = message("no_weights").partition(": ")[2]
        assert str(caught.value) == expected.replace("trained_in_tensorflow", str(traps[0] / "h5"))


@pytest.mark.parametrize("name", ["optimizer", "tpu_name", "tpu_missing"])
def test_the_messages_of_keras_and_of_the_tpu(traps, name):
    assert traps[1][name].startswith(message(name))


def test_the_optimizer_of_keras_2_is_taken(traps):
    assert traps[1]["legacy"] is None


def test_every_tensorflow_model_warns_that_it_ends(traps):
    assert message("deprecated") in traps[2]


def test_without_tf_keras_the_message_names_it(tmp_path):
    assert message("keras_3") in old(WITHOUT_TF_KERAS, tmp_path).stderr


def test_tensorflow_keras_before_transformers_is_keras_3(tmp_path):
    assert old(TENSORFLOW_FIRST, tmp_path).stdout.strip().startswith("keras.")


def test_an_input_of_keras_3_is_refused_and_one_of_keras_2_is_taken(tmp_path, monkeypatch):
    assert old(INPUT_OF_KERAS_3, tmp_path).stdout.startswith(message("keras_tensor"))
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert old(INPUT_OF_KERAS_3, tmp_path).stdout == ""


# The table of counterparts


def test_each_argument_of_trainer_in_the_table_exists():
    known = {field.name for field in fields(TrainingArguments)} | {"eval_dataset"}
    table = PAGE.read_text().split("{ #counterparts }")[1].split("**The defaults differ.**")[0]
    named = {name for row in table.splitlines()[4:] if row for name in re.findall(r"`(\w+)[=`]", row.split("|")[2])}
    others = {"Trainer", "torchrun", "EarlyStoppingCallback"}
    assert len(named - others) > 10
    assert named - others <= known
    assert hasattr(transformers, "EarlyStoppingCallback") and "eval_dataset" in Trainer.__init__.__code__.co_varnames


def test_the_defaults_of_both_optimizers_are_those_of_the_page(traps):
    arguments = TrainingArguments("out")
    assert traps[1]["adam"] == [pytest.approx(1e-3), 1e-7]
    assert (arguments.learning_rate, arguments.adam_epsilon, arguments.lr_scheduler_type.value) == (5e-5, 1e-8, "linear")
