"""Every file and message of snippets/ is accounted for, and each call in a program is one that the installed libraries know.

That a program runs is tested beside the sentences of its page, in tests/pages/, or where it is watched, by
test_programs_do_what_they_say.py.
"""

import ast
import contextlib
import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from programs import ROOT, SNIPPETS, regions
from transformers import TrainingArguments
from watched import ALL, WATCHED

from evidence.problems import nearest

MESSAGES = sorted(SNIPPETS.glob("*/messages.txt"))
FILES = sorted(path for path in SNIPPETS.rglob("*") if path.is_file() and "__pycache__" not in path.parts and path not in MESSAGES)
PYTHON = [path for path in FILES if path.suffix == ".py"]
SHELL = [path for path in FILES if path.suffix in (".sh", ".sbatch")]
DATA = [path for path in FILES if path.suffix in (".json", ".yaml")]
TESTS = sorted((ROOT / "tests" / "pages").glob("test_*.py"))

# Files that no test runs or reads, and why. The calls of the programs are checked all the same, see below.
GPU = "needs a GPU"
NOT_TESTED = {
    "adapters_and_offload/zero_offload.py": GPU,
    "attention_and_loss/flash.py": GPU,
    "attention_and_loss/flash_impl.py": GPU,
    "attention_and_loss/liger.py": GPU,
    "contribute/add.sh": "needs a record that somebody sent; test_contributions.py sends some",
    "contribute/include.txt": "shows how a page includes a program",
    "contribute/message.txt": "shows a message with its mark",
    "contribute/notes.txt": "shows how a page cites a note",
    "contribute/redirects.txt": "shows a line of redirects.yml",
    "contribute/use.txt": "shows how a page shows a figure",
    "big_models/path.txt": "a picture",
    "big_models/estimate.sh": "needs a reader's config.json; test_big_models.py runs its command with another",
    "contribute/changed.sh": "starts tests; test_chosen.py says which",
    "contribute/gpu.sh": "installs packages and measures a GPU; test_gpu_steps.py runs what it starts",
    "contribute/profile.sh": "traces for minutes; tests/dryrun/test_profiles.py compares what it makes",
    "contribute/record.sh": "records measurements: minutes to hours",
    "contribute/record_here.sh": "installs packages and records measurements",
    "contribute/session.sh": "measures a GPU; test_gpu_session.py runs what it starts",
    "contribute/two_commands.sh": "serves the site, and starts these very tests",
    "contribute/verify.sh": "runs a notebook; test_compare.py tries what it prints",
    "cpu_inference/ask.sh": "asks a server that serves a model of the Hub",
    "cpu_inference/instances.sh": "needs 16 cores and a server that the reader writes",
    "cpu_inference/imatrix.sh": "needs llama.cpp",
    "cpu_inference/llama_cpp.sh": "needs llama.cpp",
    "cpu_inference/numa.sh": "needs two NUMA nodes",
    "cpu_inference/optimum_onnx.sh": "installs packages; the program that it starts is run",
    "cpu_inference/serve.sh": "installs packages and serves a model of the Hub",
    "hyperparameter_search/ray_search.py": "needs a Ray cluster",
    "hyperparameter_search/sweep.sh": "needs an account at Weights & Biases",
    "inference_many_gpus/launch.sh": "needs four GPUs; test_inference_many_gpus.py reads its options and starts its program",
    "inference_many_gpus/split.sh": "starts four processes; test_inference_many_gpus.py runs its program on four ranks",
    "inference_many_gpus/vllm.sh": "serves models of the Hub with an engine that needs GPUs",
    "servers/engines.sh": "serves a model of the Hub with engines that need a GPU",
    "servers/serve.sh": "installs packages and serves a model of the Hub",
    "dryrun/days.sh": "test_dryrun.py runs its command and compares what it prints",
    "dryrun/infer.sh": "test_dryrun.py runs its command and compares what it prints",
    "dryrun/mac.sh": "test_dryrun.py runs its command and compares what it prints",
    "dryrun/measured.sh": "test_dryrun.py runs its command and compares what it prints",
    "dryrun/own.sh": "test_dryrun.py runs its command and compares what it prints",
    "dryrun/install.sh": "installs packages; test_dryrun.py compares its address and version",
    "dryrun/plan.sh": "test_dryrun.py runs its command and compares what it prints",
    "dryrun/train.sh": "test_dryrun.py runs its command and compares what it prints",
    "gpu_time/predict.sh": "test_gpu_time.py runs its command with --json",
    "hardware/bench.sh": "its second command needs a GPU; test_bench.py runs both on a file and on the CPU",
    "hardware/topology.txt": "what nvidia-smi prints on an imagined machine",
    "hardware/log.sh": "needs a GPU; test_hardware.py reads its fields",
    "hardware/mlx.sh": "needs a Mac",
    "hardware/old_gpu.sh": "installs another torch, and needs a GPU",
    "hardware/reboot.sh": "needs a GPU and root",
    "launching/ray_train.py": "needs a Ray cluster",
    "own_loop/container.sh": "needs Docker and a GPU",
    "recipes/export_offline.sh": "installs a package; test_recipes.py runs its program with the same folder",
    "recipes/export_real.sh": "downloads a model of the Hub",
    "recipes/install.sh": "installs packages",
    "recipes/install_14b.sh": "installs packages",
    "recipes/install_encoder.sh": "installs packages",
    "recipes/load_encoder.sh": "asks a running server; test_recipes.py runs its program",
    "recipes/quantize.sh": "installs a package and starts a server; test_recipes.py runs its program",
    "recipes/real.sh": "downloads a model of the Hub, and needs a GPU",
    "recipes/real_14b.sh": "downloads a model of the Hub, and needs eight GPUs",
    "recipes/serve_encoder.sh": "runs until it is stopped; test_recipes.py starts its program",
    "recipes/serve_merged.sh": "serves models with an engine that needs a GPU",
    "recipes/two_encoders.sh": "needs 16 cores; test_recipes.py starts its program",
    "recipes/use.sh": "downloads a model of the Hub; test_recipes.py runs its program",
    "sharding/trainer_zero3.py": GPU,
    "post_training/install.sh": "installs packages; test_post_training.py compares its versions",
    "tensorflow/install.sh": "installs packages; the programs that they are for are run",
    "tpu/install.sh": "installs packages; the programs that need them are run",
    "tpu/one_host.sh": "rents a TPU",
    "tpu/several_hosts.sh": "needs two hosts with TPUs",
    "tpu/on_vm.sh": "installs on a TPU VM; test_tpu.py gives it stand-ins for what it downloads",
    "xla/serve.sh": "serves a model of the Hub on a TPU",
}

# What the type checker reports, although the program is right: file, words of the report, why.
KNOWN = [
    (
        "adapters_and_offload/mixture_of_experts.py",
        "`head_dim`",
        "a configuration keeps keywords that it does not declare",
    ),
    ("inference_many_gpus/experts.py", "`head_dim`", "the same"),
    ("adapters_and_offload/quantization_aware.py", "`int4`", "torch has this dtype, and its stubs do not"),
    ("recipes/quantize_encoder.py", "`nncf`", "a package of .venv/optimum-intel, which test_recipes.py runs it with"),
    ("model_parallelism/experts_transformers.py", "`head_dim`", "the same"),
    ("model_parallelism/context_parallel.py", "`attn_implementation`", "the base of all configurations takes it"),
    ("model_parallelism/ring_attention.py", "`attn_implementation`", "the same"),
    ("model_parallelism/ulysses.py", "`attn_implementation`", "the same"),
    ("sharding/load_sharded.py", "`to_local`", "the parameters of a sharded model are DTensors"),
    ("cpu_inference/int8.py", "`quantize_dynamic` is deprecated", "the page says so"),
    ("cpu_inference/optimum_intel.py", "`optimum.intel`", "has an environment apart, where the program is run"),
    ("cpu_inference/optimum_onnx.py", "`optimum.onnxruntime`", "the same"),
    ("tensorflow/fit.py", "`tensorflow`", "the same"),
    ("tensorflow/generate.py", "`tensorflow`", "the same"),
    ("tensorflow/to_pytorch.py", "`tensorflow`", "the same"),
    ("tpu/flax_to_pytorch.py", "`transformers.modeling_flax_pytorch_utils`", "the same"),
    *[
        (f"hyperparameter_search/{name}.py", "`task`", "the program of that name lies beside it")
        for name in ("ddp", "lora", "memory", "ray_search", "search", "seeds", "worker")
    ],
    *[(f"hyperparameter_search/{name}.py", "`worker`", "the same") for name in ("plots", "recover")],
    ("hyperparameter_search/ray_search.py", "`ray`", "Ray is not among the tests' packages"),
    ("hyperparameter_search/ray_search.py", "`ray.tune.schedulers`", "the same"),
    *[
        (
            file,
            f"`{module}`",
            "JAX has an environment apart, where the program is run; task and collectives lie beside it",
        )
        for file, modules in {
            "tpu/check_tpu.py": ["jax"],
            "tpu/control_flow.py": ["jax", "jax.numpy"],
            "tpu/disk_cache.py": ["jax", "jax.numpy"],
            "tpu/shapes.py": ["jax", "jax.numpy"],
            "tpu/train.py": ["jax", "optax", "torchax", "torchax.interop", "jax.sharding", "collectives", "task"],
            "tpu/train_jax.py": ["jax", "jax.numpy", "optax", "flax", "jax.sharding", "task"],
            "tpu/train_pytorch.py": ["task"],
            "xla/generate.py": ["jax", "jax.numpy", "torchax", "torchax.interop"],
        }.items()
        for module in modules
    ],
    ("launching/ray_train.py", "`ray.train`", "Ray is not among the tests' packages"),
    ("launching/ray_train.py", "`ray.train.torch`", "the same"),
    ("launching/ray_train.py", "`train`", "the program of that name lies beside it"),
]
RULES = [
    "unknown-argument", "missing-argument", "too-many-positional-arguments", "parameter-already-assigned",
    "no-matching-overload", "missing-attribute", "import-not-found", "unresolved-reference", "deprecated",
]  # fmt: skip


def name_of(path):
    return path.relative_to(SNIPPETS).as_posix()


# Every file


def strings(node):
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def runs(source):
    """The strings in those functions of a test file, decorators included, that call `run`, and in the lists that they name."""
    module = ast.parse(source)
    functions = {node: names(node) for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    lists = {
        target.id: strings(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    runners, found = {"run", "Job"}, set()  # Job, in test_launching.py, starts programs that meet each other
    while more := {node.name for node, named in functions.items() if named & runners} - runners:
        runners |= more  # a function that calls one of these is one of these
    for node, named in functions.items():
        if named & runners:
            found |= strings(node).union(*(lists.get(name, set()) for name in named))
    return found


def names(function):
    """What a function refers to: its fixtures, too."""
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} | {
        each.arg for each in function.args.args
    }


def unaccounted(names, tested, not_tested):
    """What is wrong between the files, those that tests run or read, and the list of those that no test does."""
    for name in names:
        if name in tested and name in not_tested:
            yield f"snippets/{name}: a test runs or reads it. Fix: take it out of NOT_TESTED in tests/test_snippets.py"
        if name not in tested and name not in not_tested:
            how = f"call run({name!r}), the name in full," if name.endswith((".py", ".sh", ".sbatch")) else "read it"
            yield f"snippets/{name}: no test runs or reads it. Fix: {how} in tests/pages/test_{name.split('/')[0]}.py"
    for name in sorted(not_tested.keys() - set(names)):
        yield f"tests/test_snippets.py: NOT_TESTED names {name}, which is no file{nearest(name, names)}. Fix: take it out"


def page_test(path):
    return ROOT / "tests" / "pages" / f"test_{path.relative_to(SNIPPETS).parts[0]}.py"


def named_by_test(path):
    """The strings in the test of a snippet's page."""
    return strings(ast.parse(page_test(path).read_text()))


def read_by_tests(path):
    """Does the test of its page name this configuration?"""
    return bool(named_by_test(path) & {path.stem, path.name, name_of(path)})


def fail_with(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_file_is_run_or_read_by_a_test_or_listed_with_the_reason_why_not():
    tested = set().union(WATCHED, *(runs(path.read_text()) for path in TESTS))  # those of watched.py: test_programs_do_what_they_say.py
    tested |= {name_of(path) for path in FILES if path not in PYTHON + SHELL and read_by_tests(path)}
    fail_with([*unaccounted([name_of(path) for path in FILES], tested, NOT_TESTED)])


def test_every_message_is_raised_by_a_test_of_its_page_or_says_why_not():
    """`--8<-- [start:name] not tested: why` in snippets/<guide>/messages.txt."""
    problems = []
    for path in MESSAGES:
        tested = named_by_test(path)
        for name, mark, _ in regions(path):
            why = mark.removeprefix("not tested: ")
            if (name in tested) == bool(why):
                fix = "take `not tested` out" if why else f'compare it in {page_test(path).relative_to(ROOT)}, shown_message("{path.parent.name}", "{name}"), or write `not tested: why` behind its start'
                problems.append(f"{path.relative_to(ROOT)}: {name} {'has a test' if why else 'has no test'}. Fix: {fix}")
    fail_with(problems)


# Calls, attributes and imports that the installed libraries do not know


def type_errors(folder):
    """[(file, line, report)] of the type checker, by the rules above, for the programs below `folder`."""
    options = ["--ignore", "all", *(word for rule in RULES for word in ("--error", rule))]
    checker = Path(sys.executable).with_name("ty")
    command = [checker, "check", *options, "--python", sys.prefix, "--output-format", "concise", "--no-progress", "."]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert said.returncode in (0, 1), said.stderr
    found = re.findall(r"^(\S+\.py):(\d+):\d+: error\[\S+\] (.*)$", said.stdout, re.M)
    assert bool(found) == bool(said.returncode), said.stdout
    return [(file, int(line), report) for file, line, report in found]


def test_every_call_and_attribute_of_the_programs_exists_in_the_installed_libraries():
    found = type_errors(SNIPPETS)
    known = [(file, words) for file, words, _ in KNOWN]
    new = [
        f"snippets/{file}:{line}: {report}. Fix: correct it, or list it in KNOWN in tests/test_snippets.py with the reason"
        for file, line, report in found
        if not any(file == known_file and words in report for known_file, words in known)
    ]
    stale = [
        f"tests/test_snippets.py: KNOWN lists {words} in {file}, which is no longer reported. Fix: take it out"
        for file, words in known
        if not any(file == found_file and words in report for found_file, _, report in found)
    ]
    fail_with(new + stale)


# Keywords that a function takes by **kwargs and passes on, so that no signature tells a misspelt one.
PASSED_ON = {
    "from_config": {"attn_implementation", "dtype"},
    "from_pretrained": {"device_map", "distributed_config", "dtype", "gguf_file", "quantization_config"}
    | {"max_memory", "offload_folder", "output_loading_info"},
    "CPUOffloadOptimizer": {"lr"},
    "PartialState": {"timeout"},
    "ZeroRedundancyOptimizer": {"lr"},
    "DataCollatorWithFlattening": {"return_tensors"},
    "GenerationConfig": {
        "cache_implementation",
        "do_sample",
        "eos_token_id",
        "max_cache_len",
        "max_new_tokens",
        "pad_token_id",
    },
    "LlamaConfig": {"attn_implementation"},
    "Qwen3MoeConfig": {"head_dim"},
    "savez": {"ids", "logits"},
    "TokenizersBackend": {"eos_token", "pad_token", "tokenizer_object"},
}


def imported(module):
    """{name: object} of what a program imports; without the packages that are not installed here."""
    found = {}
    for node in ast.walk(module):
        with contextlib.suppress(ImportError):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = importlib.import_module(alias.name)
                    found[alias.asname or alias.name.split(".")[0]] = (
                        whole if alias.asname else sys.modules[alias.name.split(".")[0]]
                    )
            elif isinstance(node, ast.ImportFrom):
                whole = importlib.import_module(node.module)
                found |= {alias.asname or alias.name: getattr(whole, alias.name, None) for alias in node.names}
    return found


def resolved(node, names):
    if isinstance(node, ast.Attribute):
        return getattr(resolved(node.value, names), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def unnamed_keywords(path):
    """(line, function, keyword) of each keyword that the signature of an imported function does not name."""
    module = ast.parse(path.read_text())
    names = imported(module)
    for call in ast.walk(module):
        called = resolved(call.func, names) if isinstance(call, ast.Call) and call.keywords else None
        try:
            parameters = inspect.signature(called).parameters
        except (TypeError, ValueError):  # not imported, or written in C++: the type checker knows the stubs of those
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        yield from ((each.lineno, name, each.arg) for each in call.keywords if each.arg and each.arg not in parameters)


def test_every_keyword_is_named_by_its_function_or_known_to_be_passed_on():
    fix = "Fix: correct it, or add it to PASSED_ON in tests/test_snippets.py"
    found = [(f"snippets/{name_of(path)}:{line}", function, keyword) for path in PYTHON for line, function, keyword in unnamed_keywords(path)]
    listed = {(function, keyword) for function, keywords in PASSED_ON.items() for keyword in keywords}
    new = [f"{place}: {function}() has no argument {keyword}{nearest(keyword, PASSED_ON.get(function, ()))}. {fix}"
           for place, function, keyword in found if (function, keyword) not in listed]  # fmt: skip
    stale = [f"tests/test_snippets.py: PASSED_ON lists {keyword} of {function}(), which no program needs. Fix: take it out"
             for function, keyword in sorted(listed - {(function, keyword) for _, function, keyword in found})]  # fmt: skip
    fail_with(new + stale)


def renamed_arguments():
    """{old name: new name} of the arguments of TrainingArguments that transformers is giving up."""
    helps = {field.name: field.metadata.get("help", "") for field in dataclasses.fields(TrainingArguments)}
    found = {name: re.match(r"Deprecated alias of `(\w+)`", text) for name, text in helps.items()}
    return {name: match[1] for name, match in found.items() if match}


def test_no_program_uses_an_argument_that_transformers_is_giving_up():
    renamed = renamed_arguments()
    assert "gradient_checkpointing" in renamed
    fail_with([
        f"snippets/{name_of(path)}:{node.lineno}: {node.arg} is now {renamed[node.arg]}"
        for path in PYTHON for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.keyword) and node.arg in renamed
    ])  # fmt: skip


# Shell, JSON and YAML


def test_every_shell_program_is_valid_shell():
    fail_with([said.stderr for said in (subprocess.run(["bash", "-n", path], capture_output=True, text=True) for path in SHELL) if said.returncode])


@pytest.mark.parametrize("path", DATA, ids=name_of)
def test_every_configuration_is_valid_and_names_no_key_twice(path):
    def once(pairs):
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"snippets/{name_of(path)}: a key stands twice in {keys}"
        return dict(pairs)

    def refused(constant):
        raise ValueError(f"snippets/{name_of(path)}: {constant} is not JSON")

    if path.suffix == ".json":
        assert json.loads(path.read_text(), object_pairs_hook=once, parse_constant=refused)
    else:
        loader = yaml.SafeLoader(path.read_text())
        node = loader.get_single_node()
        for each in mappings(node):
            once([(key.value, None) for key, _ in each.value])
        assert loader.construct_document(node)


def mappings(node):
    if isinstance(node, yaml.MappingNode):
        yield node
    for child in node.value if isinstance(node.value, list) else ():
        for part in child if isinstance(child, tuple) else (child,):
            yield from mappings(part)


# Length


def test_every_program_is_short_and_narrow_enough_to_read():
    texts = {name_of(path): path.read_text().splitlines() for path in PYTHON}
    long = [f"snippets/{name}: {len(lines)} lines, of 110 at most" for name, lines in texts.items() if len(lines) > 110]
    wide = [f"snippets/{name}:{number}: more than 130 columns. Fix: break the line"
            for name, lines in texts.items() for number, line in enumerate(lines, 1) if len(line) > 130]  # fmt: skip
    fail_with(long + wide)


# The end of a program on several ranks


ON_SEVERAL_RANKS = {each.name for each in ALL if each.how.get("processes", 1) > 1 and not each.by}
ENDS_ITS_GROUP = [
    path
    for path in sorted(SNIPPETS.rglob("*.py"))
    if (path.relative_to(SNIPPETS).as_posix() in ON_SEVERAL_RANKS or re.search(r"destroy_process_group|end_training", path.read_text()))
    and path
    != SNIPPETS
    / "launching"
    / "train.py"  # its barrier is freed with the function that trains, long before Python ends
]


@pytest.mark.parametrize("path", ENDS_ITS_GROUP, ids=lambda path: path.relative_to(SNIPPETS).as_posix())
def test_ranks_wait_for_each_other_by_a_named_barrier_before_they_end_their_group(path):
    """Without it gloo aborts some runs while Python ends: `terminate called without an active exception`."""
    text = path.read_text()
    barrier = re.search(r"^ *end = [\w.]+\.barrier\(async_op=True\).*\n *end\.wait\(\)", text, re.M)
    fix = f"{path.relative_to(ROOT)}: end = dist.barrier(async_op=True); end.wait()"
    assert barrier, fix
    after = text[barrier.end() :]
    assert re.search(r"destroy_process_group\(\)|end_training\(\)", after), fix
    assert not re.search(r"\.(all_reduce|all_gather|gather|broadcast|barrier|wait_for_everyone)\w*\(", after), fix
