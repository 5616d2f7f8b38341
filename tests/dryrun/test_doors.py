"""One question, asked from Python, by the command, by a name and by a config.json: the same answer to the last digit."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from built import ROOT

import dryrun
from dryrun import Cluster, Generation, Job, planner
from dryrun import __main__ as command
from dryrun.answer import largest_batch
from dryrun.models import values_of

SHORT = ("--length", "256")
TRAINED = {  # the options of the command: the same in Python
    "full": ((), Job("qwen3-0.6b", length=256), Cluster("l4"), {}),
    "LoRA, checkpointing": (("--lora", "8", "--checkpointing"), Job("qwen3-0.6b", length=256, method="lora", rank=8, checkpointing=True), Cluster("t4"), {}),
    "QLoRA, fused loss": (("--qlora", "--fused-loss"), Job("qwen3-0.6b", length=256, method="qlora", fused_loss=True), Cluster("rtx-3060-12"), {}),
    "mixed": (("--dtype", "mixed"), Job("qwen3-0.6b", length=256, precision="mixed"), Cluster("a100-sxm4-80"), {}),
    "compiled": (("--compile",), Job("qwen3-0.6b", length=256, compiled=True), Cluster("h100-sxm5"), {}),
    "DDP without NVLink": (("--gpus", "4", "--strategy", "ddp"), Job("qwen3-0.6b", length=256), Cluster("rtx-4090", gpus=4), {"strategy": "ddp"}),
    "FSDP2, measured links": (
        ("--gpus", "16", "--link", "100", "--network", "20", "--accumulation", "4"),
        Job("qwen3-0.6b", length=256, accumulation=4), Cluster("a100-sxm4-80", gpus=16, link=100, network=20), {},
    ),
    "HSDP, a named network": (
        ("--gpus", "16", "--strategy", "hsdp", "--network", "100 GbE", "--adapters", "2"),
        Job("qwen3-0.6b", length=256), Cluster("l4", gpus=16, network="100 GbE", adapters=2), {"strategy": "hsdp"},
    ),
}  # fmt: skip
GENERATED = {
    "16 bits": ((), Generation("qwen3-0.6b", prompt=100, new=28), Cluster("t4")),
    "4 bits, a batch": (("--weights", "int4-128", "--batch", "4"), Generation("qwen3-0.6b", prompt=100, new=28, batch=4, weights="int4-128"), Cluster("l4")),
    "split, over PCIe": (("--gpus", "2"), Generation("qwen3-0.6b", prompt=100, new=28), Cluster("rtx-4090", gpus=2)),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("own_traces")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps({"model_type": "qwen3", **values_of("qwen3-0.6b")}))
    return path


def said(capsys, *words):
    assert command.main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("asked", TRAINED)
def test_a_training_step_is_answered_alike(capsys, file, asked):
    options, job, cluster, strategy = TRAINED[asked]
    where = ("--gpu", cluster.gpu.key, *SHORT, *options)
    named, by_file = said(capsys, "train", "qwen3-0.6b", *where), said(capsys, "train", file, *where)
    answer = dryrun.predict(job, cluster, **strategy)
    found = answer.prediction
    assert (named["seconds"], named["low"], named["high"]) == (found.seconds, found.low, found.high)
    assert (named["expected_gib"], named["high_gib"]) == (answer.needed.expected / 2**30, answer.needed.high / 2**30)
    assert (named["verdict"], named["fits"]) == (answer.verdict, answer.fits)
    del named["model"], by_file["model"]
    assert named == by_file


@pytest.mark.parametrize("asked", GENERATED)
def test_a_generation_is_answered_alike(capsys, file, asked):
    options, generation, cluster = GENERATED[asked]
    where = ("--gpu", cluster.gpu.key, "--prompt", 100, "--new", 28, *options)
    named, by_file = said(capsys, "infer", "qwen3-0.6b", *where), said(capsys, "infer", file, *where)
    served = dryrun.predict(generation, cluster)
    assert named["speed"]["tokens_per_second"] == generation.batch / served.decode.seconds
    assert (named["users"], named["longest"], named["verdict"]) == (served.users, served.longest, served.verdict)
    del named["model"], by_file["model"]
    assert named == by_file


@pytest.mark.parametrize("gpu", ["a100-sxm4-80", "rtx-4090"])
def test_a_plan_says_of_a_strategy_what_predict_says_of_it(capsys, gpu):
    job, cluster = Job("qwen3-0.6b", length=256, checkpointing=True), Cluster(gpu, gpus=8)
    (option,) = dryrun.plan(job, cluster, only="FSDP2")
    answer = dryrun.predict(job, cluster)
    assert (option.seconds, option.needed.expected, option.needed.high) == (answer.prediction.seconds, answer.needed.expected, answer.needed.high)
    (line,) = said(capsys, "plan", "qwen3-0.6b", "--gpu", gpu, "--gpus", 8, "--checkpointing", *SHORT, "--only", "FSDP2")
    assert (line["seconds"], line["verdict"]) == (option.seconds, option.verdict)


@pytest.mark.parametrize("gpu", ["a100-sxm4-80", "rtx-4090"])
def test_every_strategy_of_a_plan_is_that_of_the_planner_of_the_notebooks(gpu):
    """Stages of a pipeline too, which send inside the node and not over a network."""
    asked = dryrun.plan(Job("qwen3-0.6b", length=256, checkpointing=True), Cluster(gpu, gpus=4))
    noted = planner.plan("qwen3-0.6b", gpu, 4, length=256, precision="bf16")
    assert any(option.setting.pipeline > 1 for option in asked)
    assert [(option.strategy, option.seconds, option.needed.high, option.verdict) for option in asked] == [
        (option.strategy, option.seconds, option.needed.high, option.verdict) for option in noted
    ]


@pytest.mark.parametrize(("job", "gpu"), [(Job("qwen3-0.6b", length=256, checkpointing=True), "t4"), (Job("qwen3-0.6b", length=256), "rtx-4060")])
def test_the_largest_batch_fits_and_one_sequence_more_does_not(job, gpu):
    batch = largest_batch(job, Cluster(gpu))
    fits = [dryrun.predict(replace(job, batch=each), Cluster(gpu)).fits for each in (batch or 1, batch + 1)]
    assert fits == [batch > 0, False]


def test_a_plan_of_lora_has_no_full_training():
    job = Job("qwen3-0.6b", length=256, method="lora")
    assert {option.workload.rank for option in dryrun.plan(job, Cluster("l4", gpus=2))} == {16}


def test_more_tokens_in_a_step_take_more_memory_and_more_seconds():
    job = Job("qwen3-0.6b", length=256)
    less, more = (dryrun.predict(each, Cluster("l4")) for each in (job, replace(job, batch=8)))
    assert more.needed.expected > less.needed.expected and more.prediction.seconds > less.prediction.seconds


def test_more_users_fit_where_weights_are_narrower_and_none_where_they_do_not_fit():
    wide, narrow = (dryrun.predict(Generation("llama3-8b", weights=weights), Cluster("rtx-4090")) for weights in ("bf16", "int4-128"))
    assert 0 < wide.users < narrow.users and wide.longest < narrow.longest
    large = dryrun.predict(Generation("llama3-70b"), Cluster("rtx-4090"))
    assert (large.verdict, large.users, large.longest) == ("it does not fit", 0, 0)
    assert any("--gpus 8" in line for line in large.what_fits()) and any("int4" in line for line in dryrun.predict(Generation("llama3-70b"), Cluster("h100-sxm")).what_fits())


def test_a_hybrid_keeps_a_state_beside_its_cache():
    served = dryrun.predict(Generation("qwen3.5-9b"), Cluster("l40s"))
    # 24 layers of linear attention: 32 heads of 128 x 128 in fp32, and the last 4 inputs of 8,192 channels in 16 bits
    assert served.traced.state == 24 * (32 * 128 * 128 * 4 + 8192 * 4 * 2)
    assert served.cache(0) == served.traced.state


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job("llama3-8"), "did you mean llama3-8b"),
        (lambda: Job("gpt2", batch=0), "batch=0: give a whole number from 1"),
        (lambda: Job("gpt2", precision="bf32"), "did you mean 'fp32'? Choose one of: bf16"),
        (lambda: Job("gpt2", method="dora"), "method='dora' is not known"),
        (lambda: Cluster("rtx-409"), "did you mean rtx-4090"),
        (lambda: Cluster("l4", gpus=12), "take 16, or say how many a node has"),
        (lambda: Cluster("l4", gpus=2, link=-1.0), "give GB/s above 0"),
        (lambda: Cluster("l4", gpus=2, network="100 GbF"), "did you mean '100 GbE'"),
        (lambda: Cluster("l4", gpus=2, adapters=2), "of which network"),
        (lambda: Generation("gpt2", weights="int4"), "int4-128"),
        (lambda: dryrun.predict(Job("gpt2", length=4096), Cluster("l4")), "gpt2 has 1024 positions"),
        (lambda: dryrun.predict(Job("gpt2", length=64), Cluster("l4", gpus=2), strategy="hsdp"), "there is one node"),
        (lambda: dryrun.predict(Generation("bert-base", prompt=100), Cluster("l4")), "generates no text"),
        (lambda: dryrun.predict(Generation("llama3-8b"), Cluster("l4", gpus=16)), "take 8 or fewer"),
        (lambda: dryrun.trace(Job("gpt2", compiled=True)), "change kernels of a GPU"),
        (lambda: dryrun.trace(Job("gpt2", method="lora")), "adapters are traced for a GPU"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line_with_the_nearest_that_does(make, message):
    with pytest.raises(ValueError) as raised:
        make()
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_names_and_data_sheets_need_no_torch_and_the_rest_says_what_to_install():
    program = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None  # as if they were not installed
import importlib.util
importlib.util.find_spec = lambda name, found=importlib.util.find_spec: None if name == "torch" else found(name)
import dryrun.job
dryrun.job.find_spec = importlib.util.find_spec
from dryrun.__main__ import main
assert main(["gpus", "h100"]) == main(["models", "qwen"]) == 0
assert "numpy" not in sys.modules
print(dryrun.Job("qwen3-8b").model.name, dryrun.gpu("h100").key)
sys.exit(main(["train", "qwen3-8b", "--gpu", "l4"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "qwen3-8b h100-sxm5" in done.stdout
    assert done.stderr.strip() == "error: torch is not installed, and runs the model's code: pip install 'dryrun[trace]'"
