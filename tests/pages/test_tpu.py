"""docs/training/tpu.md and docs/training/tpu-messages.md: their programs on a CPU that plays eight chips, with the packages that they install."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys

import pytest
import torch
from programs import ROOT, SNIPPETS, load, packages, run, shown_message

PAGE = ROOT / "docs" / "training" / "tpu.md"
BESIDE = ("tpu/task.py", "tpu/collectives.py")
FINE = {"torch": "2.13.0", "jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.45", "torchax": "0.0.14", "torch_xla": None}


def on_jax():
    return {"PYTHONPATH": packages("tpu"), "JAX_PLATFORMS": "cpu"}


def error(name):
    return shown_message("tpu", name)


def losses(output):
    return [float(loss) for loss in re.findall(r"^loss (\S+)$", output.stdout, re.M)]


# Training


@pytest.fixture(scope="module")
def in_pytorch():
    return losses(run("tpu/train_pytorch.py", beside=BESIDE))


def test_plain_pytorch_learns_in_five_steps(in_pytorch):
    assert len(in_pytorch) == 5
    assert in_pytorch[-1] < in_pytorch[0] - 0.5


@pytest.mark.parametrize("layout, kinds", [
    ("data", {"all-reduce", "all-gather"}), ("fsdp", {"all-reduce", "all-gather"}), ("tensor", {"all-reduce"}),
])  # fmt: skip
def test_torchax_trains_with_the_losses_of_pytorch_on_eight_devices(layout, kinds, in_pytorch):
    made = run("tpu/train.py", layout, beside=BESIDE, environment=on_jax())
    assert losses(made) == pytest.approx(in_pytorch, abs=2e-3)
    collectives = ast.literal_eval(made.stdout.splitlines()[-1].removeprefix("collectives "))
    assert collectives.keys() == kinds


def test_weights_cast_in_the_step_as_the_page_says_train_in_bf16(in_pytorch, tmp_path):
    cast = re.search(r"First in `loss_of`: `(.+?)`", PAGE.read_text())[1]
    for name in ("train.py", "task.py", "collectives.py"):
        text = (SNIPPETS / "tpu" / name).read_text()
        (tmp_path / name).write_text(text.replace("    tensors, ids =", f"    {cast}\n    tensors, ids ="))
    made = subprocess.run([sys.executable, "train.py", "fsdp"], cwd=tmp_path, env=os.environ | on_jax(), capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    found = [float(loss) for loss in re.findall(r"^loss (\S+)$", made.stdout, re.M)]
    assert found != in_pytorch and found == pytest.approx(in_pytorch, abs=0.05)


def test_flax_trains_with_the_losses_of_pytorch(in_pytorch):
    made = run("tpu/train_jax.py", beside=BESIDE, environment=on_jax())
    assert losses(made) == pytest.approx(in_pytorch, abs=2e-3)


AFTER = {
    "train.py": "m = g['compiled'].memory_analysis(); print('given away', m.alias_size_in_bytes / m.output_size_in_bytes)",
    "train_jax.py": """
import jax
old = g["model"].lm_head.kernel[...]
ids = jax.device_put(next(iter(g["batches"]())), g["rows"])
g["step"](g["model"], g["optimizer"], ids)
print("given away", float(old.is_deleted()))""",
}


@pytest.mark.parametrize("name", AFTER)
def test_a_step_gives_the_memory_of_old_weights_and_state_to_the_new(name):
    program = f"import runpy, sys\nsys.argv = ['{name}', 'fsdp']\ng = runpy.run_path('{name}')\n{AFTER[name]}\n"
    command = [sys.executable, "-c", program]
    made = subprocess.run(command, cwd=SNIPPETS / "tpu", env=os.environ | on_jax(), capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    assert float(made.stdout.split("given away")[1]) > 0.99


# A model with a window and a scale of its own through the attention of the page, and through that of transformers.
WINDOW = """
import runpy, sys, torch, torchax
sys.argv = ["train.py", "data"]
attention = runpy.run_path("train.py")["jax_attention"]
torchax.disable_globally()
from transformers import GraniteConfig, GraniteForCausalLM, MistralConfig, MistralForCausalLM
sizes = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64)
for model in (MistralForCausalLM(MistralConfig(**sizes, sliding_window=5)), GraniteForCausalLM(GraniteConfig(**sizes, attention_multiplier=0.5))):
    ids = torch.arange(24)[None]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = model(input_ids=ids).logits
    model.set_attn_implementation("jax")
    with torchax.default_env(), torch.no_grad():
        on_jax = {name: tensor.to("jax") for name, tensor in model.state_dict().items()}
        ours = torch.func.functional_call(model.to("jax"), on_jax, (), {"input_ids": ids.to("jax")}).logits.cpu()
    print("apart", float((ours - theirs).abs().max() / theirs.abs().max()))
try:
    attention(None, None, None, None, None, softcap=50.0)
except ValueError as error:
    print(error)
"""


def test_the_attention_of_the_page_keeps_windows_and_scales_and_refuses_caps():
    command = [sys.executable, "-c", WINDOW]
    made = subprocess.run(command, cwd=SNIPPETS / "tpu", env=os.environ | on_jax(), capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    apart = [float(line.split()[1]) for line in made.stdout.splitlines() if line.startswith("apart")]
    assert len(apart) == 2 and max(apart) < 1e-4, apart
    assert "caps none" in made.stdout


def test_collectives_are_counted_with_the_bytes_of_their_results():
    text = """
    %a = f32[8,16]{1,0} all-gather(%x), channel_id=1
    %b = (f32[4]{0}, /*index=1*/bf16[2,3]{1,0}) all-reduce(%y, %z), to_apply=%add
    %c = s32[] all-reduce-start(%w)
    %d = f32[8]{0} add(%a, %a)
    """
    assert load("tpu/collectives.py").collectives(text) == {"all-gather": [1, 512], "all-reduce": [2, 32]}


# The rules of XLA


def test_ten_lengths_are_ten_programs_and_four_in_buckets():
    plain, padded, batch = run("tpu/shapes.py", environment=on_jax()).stdout.splitlines()
    assert plain == "as they come: 10"
    assert padded == "in buckets: 4"
    assert batch == "a smaller last batch: (3, 64)"


def test_each_compilation_is_logged_and_explained():
    made = run("tpu/see_recompiles.sh", beside=["tpu/shapes.py"], environment=on_jax())
    compiled = {shape for shape in re.findall(r"Compiling jit\(step\).*?int32\[8,(\d+)\]", made.stderr)}
    assert {"30", "41", "256"} <= compiled
    assert "MISS" in made.stderr


def test_values_decide_neither_a_branch_nor_a_shape():
    lines = run("tpu/control_flow.py", environment=on_jax()).stdout.splitlines()
    assert lines == [error("branch"), "[0.0, 0.0, 0.0, 0.0]", error("shape"), "1.0"]


def test_a_second_run_finds_its_programs_on_disk_and_a_new_shape_is_compiled():
    first = run("tpu/disk_cache.py", 8, environment=on_jax())
    assert re.fullmatch(r"from disk: 0 compiled: [1-9]\d*\n", first.stdout)
    again = run("tpu/disk_cache.py", 8, environment=on_jax(), start=first.folder)
    assert re.fullmatch(r"from disk: [1-9]\d* compiled: 0\n", again.stdout)
    other = run("tpu/disk_cache.py", 16, environment=on_jax(), start=first.folder)
    assert re.fullmatch(r"from disk: \d+ compiled: [1-9]\d*\n", other.stdout)


# What goes wrong


def test_a_machine_with_a_tpu_and_fitting_versions_has_no_problem():
    assert not list(load("tpu/check_tpu.py").problems(FINE, "tpu", False, True))


@pytest.mark.parametrize("versions, platform, gpu, use, words, fix", [
    ({"jax": None}, None, False, True, "jax is not installed", "pip install"),
    ({"jaxlib": "0.9.0"}, "tpu", False, True, "jaxlib 0.9.0", "jax[tpu]==0.10.2"),
    ({"libtpu": None}, "cpu", False, True, "There is no libtpu", "jax[tpu]==0.10.2"),
    ({}, "cpu", False, True, "although libtpu is there", "lsof"),
    ({"torch_xla": "2.13.0"}, "gpu", True, True, "a machine with a GPU: Trainer takes its device", "USE_TORCH_XLA=0"),
    ({"torch_xla": "2.9.0"}, "tpu", False, True, "torch_xla 2.9.0", "both in one version"),
])  # fmt: skip
def test_each_problem_is_named_with_its_fix(versions, platform, gpu, use, words, fix):
    found = list(load("tpu/check_tpu.py").problems(FINE | versions, platform, gpu, use))
    assert any(words in what and fix in how for what, how in found), found


def test_the_check_prints_what_it_found_on_a_machine_without_a_tpu():
    made = run("tpu/check.sh", beside=["tpu/check_tpu.py"], environment=on_jax())
    assert "'jax': '0.10.2'" in made.stdout
    assert "JAX computes on: cpu. There is no libtpu. Fix: " in made.stdout


def test_jax_without_a_tpu_fails_where_only_a_tpu_is_allowed():
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    environment = os.environ | on_jax() | {"JAX_PLATFORMS": "tpu"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode
    assert error("no_tpu") in said.stderr


def test_a_package_named_torch_xla_is_enough_for_trainer_unless_it_is_turned_off(tmp_path):
    package = tmp_path / "torch_xla"
    package.mkdir()
    (package / "__init__.py").touch()
    (tmp_path / "torch_xla-2.9.0.dist-info").mkdir()
    (tmp_path / "torch_xla-2.9.0.dist-info" / "METADATA").write_text("Name: torch_xla\nVersion: 2.9.0\n")
    ask = "from transformers.utils import is_torch_xla_available as found; print(found())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    environment.pop("USE_TORCH_XLA", None)
    said = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True)
    assert said.stdout.endswith("True\n"), said.stderr
    off = run("tpu/no_torch_xla.sh", environment={"PYTHONPATH": str(tmp_path)})
    assert off.stdout.endswith("False\n")


def test_torch_lacks_the_overload_that_the_released_torchax_names():
    with pytest.raises(AttributeError) as raised:
        torch.ops.aten.prod.dim_Dimname  # noqa: B018
    assert f"AttributeError: {raised.value}" == error("torchax")


# The last transformers with Flax, in the environment of TensorFlow

FROM_FLAX = """
from transformers import BertForSequenceClassification
lost = BertForSequenceClassification.from_pretrained("in_flax", from_flax=True)
print({each.device.type for each in lost.parameters()})
"""


def test_weights_of_flax_arrive_by_copying_and_from_flax_leaves_them_without_values():
    both = os.pathsep.join(packages(name) for name in ("tensorflow", "tpu"))
    moved = run("tpu/flax_to_pytorch.py", environment={"PYTHONPATH": both, "JAX_PLATFORMS": "cpu"})
    assert moved.stdout.splitlines()[-1] == "in_pytorch answers as in_flax does"
    environment = os.environ | {"PYTHONPATH": both, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", FROM_FLAX]
    lost = subprocess.run(command, cwd=moved.folder, env=environment, capture_output=True, text=True, timeout=300)
    assert lost.stdout.splitlines()[-1] == "{'meta'}"


# Hosts and memory


COORDINATOR = """
import inspect, jax
from jax._src.clusters import cloud_tpu_cluster

class Pod(cloud_tpu_cluster.BaseTpuCluster):
    name = "pod"
    is_env_present = classmethod(lambda cls: True)
    wait_for_coordinator = classmethod(lambda cls, address, seconds: None)
    get_process_id = classmethod(lambda cls: 0)
    get_local_process_id = classmethod(lambda cls: None)

print(Pod.auto_detect_unset_distributed_params(None, 2, None, None, "pod", 300)[0])
print(inspect.signature(jax.distributed.initialize).parameters["initialization_timeout"].default)
"""


def test_the_port_of_the_coordinator_is_the_one_of_the_page_and_a_variable_changes_it():
    met = []
    for more in ({}, {"JAX_COORDINATOR_PORT": "8476"}):
        environment = os.environ | on_jax() | {"MEGASCALE_COORDINATOR_ADDRESS": "host"} | more
        made = subprocess.run([sys.executable, "-c", COORDINATOR], capture_output=True, text=True, env=environment)
        assert made.returncode == 0, made.stderr
        met.append(made.stdout.split())
    (first, seconds), (second, _) = met
    assert f"8476 to {first.removeprefix('host:')}" in PAGE.read_text() and second == "host:8476"
    assert f"`{seconds}`" in PAGE.read_text()


MEMORY = """
import jax, jax.numpy as jnp
shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 1024), (512, 1024))]
planned = jax.jit(lambda weight, ids: (ids @ weight).sum()).lower(*shapes).compile().memory_analysis()
print(planned.argument_size_in_bytes, planned.output_size_in_bytes, planned.temp_size_in_bytes >= 0)
"""


SCORES = """
import jax, jax.numpy as jnp
shape = jax.ShapeDtypeStruct((1, 128, 4, 64), jnp.bfloat16)
attend = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True))
print(attend.trace(shape, shape, shape).lower(lowering_platforms=("tpu",)).as_text())
"""


def test_the_attention_of_jax_writes_its_scores_on_a_tpu():
    made = subprocess.run([sys.executable, "-c", SCORES], capture_output=True, text=True, env=os.environ | on_jax())
    assert made.returncode == 0, made.stderr
    assert "4x128x128x" in made.stdout and "tpu_custom_call" not in made.stdout


def test_the_packages_ask_for_a_newer_python_than_that_of_the_image():
    found = importlib.metadata.distributions(path=[packages("tpu")])
    asked = {each.metadata["Name"]: each.metadata["Requires-Python"] for each in found}
    assert [asked[name] for name in ("jax", "torchax", "flax")] == [">=3.11"] * 3


def test_on_a_tpu_vm_the_environment_is_made_once_and_the_command_runs_in_it(tmp_path):
    home, job = tmp_path / "home", tmp_path / "job"
    for folder in (home / ".local" / "bin", job / "bin"):
        folder.mkdir(parents=True)
    uv = home / ".local" / "bin" / "uv"
    uv.write_text('#!/bin/sh\necho made "$@"\nfor last; do :; done\nmkdir -p "$last/bin"\necho export INSIDE=yes > "$last/bin/activate"\n')
    (job / "bin" / "curl").write_text("#!/bin/sh\necho :\n")
    (job / "install.sh").write_text("echo installed in $INSIDE\n")
    for program in (uv, job / "bin" / "curl"):
        program.chmod(0o755)
    words = ["bash", str(SNIPPETS / "tpu" / "on_vm.sh"), "sh", "-c", "echo ran in $INSIDE"]
    env = {"HOME": str(home), "PATH": f"{job / 'bin'}:{os.environ['PATH']}"}
    first, second = (subprocess.run(words, capture_output=True, text=True, cwd=job, env=env) for _ in range(2))
    assert first.stdout.splitlines() == [f"made venv --seed --python 3.12 {home}/venv", "installed in yes", "ran in yes"]
    assert second.stdout.splitlines() == ["installed in yes", "ran in yes"]


def test_a_compiled_step_says_how_much_memory_it_plans_without_data():
    command = [sys.executable, "-c", MEMORY]
    said = subprocess.run(command, env=os.environ | on_jax(), capture_output=True, text=True, timeout=300)
    assert said.stdout.split() == [str(4 * (1024 * 1024 + 512 * 1024)), "4", "True"]


def test_a_dimension_that_the_devices_do_not_divide_is_refused():
    program = """
import jax, numpy
from jax.sharding import AxisType, NamedSharding, PartitionSpec
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
jax.device_put(numpy.ones((6, 64)), NamedSharding(mesh, PartitionSpec("data", None)))
"""
    environment = os.environ | on_jax() | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert error("divide") in said.stderr


def test_the_price_of_a_billion_tokens_and_the_highest_price_of_a_chip_hour():
    given = ["--hour", "2", "--rate", "7207", "--gpu-hour", "3", "--gpu-rate", "6667"]
    said = run("tpu/price.py", *given).stdout.splitlines()
    assert said == [
        f"a billion tokens: TPU {2e9 / 3600 / 7207:.2f}, GPU {3e9 / 3600 / 6667:.2f}",
        f"the TPU is cheaper below {3 * 7207 / 6667:.2f} for an hour of a chip",
    ]
