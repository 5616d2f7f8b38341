"""The sentences of docs/inference/cpu.md, in its order. Speeds are claims of the two notebooks."""

import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jupytext
import onnx
import pytest
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
from programs import too_much_to_read
from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
from torchao.quantization import Int4WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments, set_seed
from transformers.cli import serve
from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS
from transformers.quantizers import quantizer_gguf

from evidence import notebooks, records

ROOT = Path(__file__).resolve().parent.parent
SNIPPETS = ROOT / "snippets" / "cpu_inference"
ERRORS = SNIPPETS / "errors"
SHAPE = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)  # fmt: skip
PROMPT = torch.arange(5, 21)[None]


@pytest.fixture(autouse=True)
def one_thread():
    """Small models on several threads mostly wait, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def error(name):
    kind, _, message = (ERRORS / f"{name}.txt").read_text().strip().partition(": ")
    return kind, message


def raised(call, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return type(caught.value).__name__, str(caught.value).strip()


def llama(**other):
    set_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | other)).eval()


def int8(model):
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def generate(model, ids=PROMPT, **options):
    return model.generate(ids, max_new_tokens=8, do_sample=False, **options)


def cell(notebook, *needles):
    """Runs the definitions of the one code cell of a notebook that holds all needles; returns what it defines."""
    found = [
        cell.source
        for cell in jupytext.read(ROOT / "notebooks" / f"{notebook}.py").cells
        if cell.cell_type == "code" and all(needle in cell.source for needle in needles)
    ]
    assert len(found) == 1, f"{len(found)} cells of {notebook} hold {needles}"
    defined = {"os": os}
    exec(found[0].split("\n\nLACKS =")[0], defined)
    return defined


# The programs

RAN = {}


@pytest.fixture
def ran(run_snippet, monkeypatch):
    """What a program defined and what it printed, in the folder with its files. It runs once for all tests that ask."""

    def run(name):
        if name not in RAN:
            found = run_snippet(f"cpu_inference/{name}")
            RAN[name] = *found, Path.cwd()
        *found, folder = RAN[name]
        monkeypatch.chdir(folder)
        return found

    return run


@pytest.mark.parametrize(
    "name, says",
    [
        ("precision.py", "48 tokens"),
        ("int8.py", "48 tokens"),
        ("weight_only.py", "nf4: 48 tokens"),
        ("batches.py", "(3, 16)"),
        ("by_length.py", "(8, 2)"),
        ("caches.py", "48 48"),
        ("threads.py", "threads here"),
        ("first_token.py", "tokens/s"),
        ("limit.py", "4 bits: 3.9 GB, at most"),
        ("speculative.py", "greedy: 32 passes"),
        ("openvino_run.py", "(2, 2)"),
    ],
)
def test_every_program_of_the_page_runs(name, says, ran):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, printed = ran(name)
    assert says in printed


def test_an_exported_encoder_gives_the_logits_of_pytorch_and_takes_other_shapes(ran):
    defined, printed = ran("onnx_runtime.py")
    difference = next(line for line in printed.splitlines() if line.startswith("largest difference"))
    assert float(difference.split()[2]) < 1e-5
    assert printed.splitlines()[-1] == "(2, 2)"
    ids = torch.randint(1, 1000, (3, 29)).numpy()
    assert defined["session"].run(None, {"input_ids": ids, "attention_mask": ids * 0 + 1})[0].shape == (3, 2)


def test_the_compiled_program_runs(run_snippet, monkeypatch):
    """With a backend that skips the code generation: the compiler itself runs in the notebook."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: real(model, backend="eager"))
    assert run_snippet("cpu_inference/compile.py")[1].strip() == "(2, 2)"


@pytest.mark.parametrize("path", sorted(SNIPPETS.glob("*.sh")), ids=lambda path: path.name)
def test_the_shell_commands_of_the_page_are_well_formed(path):
    assert subprocess.run(["bash", "-n", path], timeout=20).returncode == 0
    assert max(map(len, path.read_text().splitlines())) <= 120


@pytest.mark.parametrize("path", sorted(SNIPPETS.glob("*.py")), ids=lambda path: path.name)
def test_programs_are_short_enough_to_read(path):
    assert not too_much_to_read(path, 50, 130)


# Precision and int8


def test_torch_says_whether_the_cpu_has_bf16_instructions():
    capabilities = torch.cpu.get_capabilities()
    if sys.platform == "linux" and "avx2" in capabilities:
        flags = Path("/proc/cpuinfo").read_text().split()
        assert bool(capabilities["avx512_bf16"]) == ("avx512_bf16" in flags)


@pytest.mark.parametrize("order", [lambda m: int8(m.bfloat16()), lambda m: int8(m).bfloat16()], ids=["before", "after"])
@pytest.mark.filterwarnings("ignore")
def test_dynamic_int8_takes_fp32_only(order):
    assert raised(order(llama()), PROMPT) == error("dynamic_bf16")


@pytest.mark.filterwarnings("ignore")
def test_dynamic_int8_cannot_be_saved_by_save_pretrained_but_its_state_can(tmp_path):
    model = int8(llama())
    assert raised(model.save_pretrained, tmp_path) == error("dynamic_save")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    again = int8(llama())
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=False))
    assert torch.equal(again(PROMPT).logits, model(PROMPT).logits)


def test_dynamic_int8_is_deprecated_and_still_there():
    with pytest.warns(DeprecationWarning) as caught:
        int8(llama())
    kind, message = error("dynamic_deprecated")
    assert kind == "DeprecationWarning"
    assert any(message in str(warning.message) for warning in caught)


@pytest.mark.parametrize(
    "name, packing", [("int4_default", None), ("int4_opaque", "opaque"), ("int4_plain", "plain_int32")]
)
def test_int4_of_torchao_fails_on_a_cpu(name, packing):
    options = {"int4_packing_format": packing} if packing else {}
    model = llama().to(torch.bfloat16)
    assert raised(lambda: quantize_(model, Int4WeightOnlyConfig(group_size=32, **options))) == error(name)


def test_torchao_has_an_int4_form_that_runs_on_a_cpu_in_bf16():
    torch.manual_seed(0)
    model, rows = (
        torch.nn.Sequential(torch.nn.Linear(256, 64, bias=False)).to(torch.bfloat16),
        torch.randn(4, 256).bfloat16(),
    )
    with torch.no_grad():
        right = model(rows)
        quantize_(model, PrototypeInt4WeightOnlyConfig(group_size=32, set_inductor_config=False))
        assert 0.01 < (model(rows) - right).norm() / right.norm() < 0.2


def test_optimum_intel_rounds_the_weights_of_a_large_model_unless_told_otherwise():
    text = (notebooks.own_packages("optimum_intel") / "optimum/intel/openvino/modeling_decoder.py").read_text()
    assert "if load_in_8bit is None and not quantization_config:" in text and "depending on the model size" in text


def test_load_in_8bit_is_no_argument_any_more(tmp_path):
    llama().save_pretrained(tmp_path)
    assert raised(LlamaForCausalLM.from_pretrained, tmp_path, load_in_8bit=True) == error("load_in_8bit")


# Batches, caches, speculation


def test_prompts_padded_on_the_left_give_the_tokens_that_they_give_alone(run_snippet):
    defined, _ = run_snippet("cpu_inference/batches.py")
    for prompt, answer in zip(defined["prompts"], defined["answers"], strict=True):
        alone = defined["model"].generate(prompt[None], max_new_tokens=16, do_sample=False)
        assert torch.equal(alone[0, len(prompt) :], answer)


def test_padded_on_the_right_the_shorter_prompts_get_other_tokens_after_a_warning(run_snippet, monkeypatch):
    said = []
    monkeypatch.setattr("transformers.generation.utils.logger.warning", lambda text, *more: said.append(text))
    defined, _ = run_snippet("cpu_inference/batches.py")
    assert not said
    prompts, padded = defined["prompts"], defined["padded"]
    ids, mask = (padded(rows, "right") for rows in (prompts, [torch.ones_like(prompt) for prompt in prompts]))
    tokens = defined["model"].generate(ids, attention_mask=mask, max_new_tokens=16, do_sample=False)
    same = [torch.equal(row[32:], answer) for row, answer in zip(tokens, defined["answers"], strict=True)]
    assert same == [False, True, False]
    assert ["right-padding was detected" in text for text in said] == [True]


def test_an_fp8_cache_needs_no_package_and_quanto_does():
    options = {"cache_implementation": "quantized"}
    assert generate(llama(), **options, cache_config={"backend": "fp8"}).shape == (1, 24)
    from transformers import cache_utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_utils, "is_optimum_quanto_available", lambda: False, raising=False)
        assert raised(generate, llama(), **options, cache_config={"backend": "quanto"}) == error("cache_quanto")


@pytest.mark.skipif(torch.cuda.is_available(), reason="2026-11-20: the error is that of a machine without a GPU")
def test_an_offloaded_cache_needs_a_gpu():
    assert raised(generate, llama(), cache_implementation="offloaded")[1] == error("cache_offloaded")[1]


def test_speculation_takes_one_prompt_and_no_static_cache():
    model, draft = llama(), llama(num_hidden_layers=1)
    assert raised(generate, model, PROMPT.repeat(2, 1), assistant_model=draft) == error("assisted_batch")
    assert raised(generate, model, assistant_model=draft, cache_implementation="static") == error("assisted_static")


def test_speculation_gives_the_tokens_of_greedy_decoding():
    model = llama()
    greedy = generate(model)
    assert torch.equal(generate(model, assistant_model=llama(num_hidden_layers=1)), greedy)
    assert torch.equal(generate(model, prompt_lookup_num_tokens=4), greedy)


def test_generate_compiles_nothing_on_a_cpu(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: pytest.fail("it compiles"))
    generate(llama(), cache_implementation="static")


# Threads and containers


def test_a_quota_lowers_the_number_of_cores_and_no_file_leaves_it(run_snippet, tmp_path):
    cpus = run_snippet("cpu_inference/threads.py")[0]["usable_cpus"]
    here = len(os.sched_getaffinity(0))
    for text, expected in (
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("max 100000", here),
        ("900000 100000", min(9, here)),
    ):
        (tmp_path / "cpu.max").write_text(text + "\n")
        assert cpus(tmp_path / "cpu.max") == expected
    assert cpus(tmp_path / "absent") == here


def test_torch_takes_a_thread_for_each_core_of_the_affinity_and_os_cpu_count_does_not_know():
    see = "import os, torch; print(os.cpu_count(), torch.get_num_threads())"
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "--cpu-list", core, sys.executable, "-c", see]
    run = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.split() == [str(os.cpu_count()), "1"]


# ONNX Runtime


def test_the_quantiser_refuses_the_shapes_of_the_exporter(ran):
    ran("onnx_runtime.py")
    with pytest.raises(Exception) as caught:
        quantize_dynamic("model.onnx", "refused.onnx", weight_type=QuantType.QInt8)
    kind, message = error("onnx_shapes")
    assert type(caught.value).__name__ == kind and message in str(caught.value)
    assert not onnx.load("plain.onnx").graph.value_info


# OpenVINO


def test_with_amx_openvino_in_bf16_is_ahead_of_every_int8_at_batch_8_and_else_int8_in_onnx_runtime_is():
    found = records.load_all(ROOT / "results")["exported_models"]
    found = [record for record in found if "value" in record.data["claims"]["openvino-bf16-one"]]  # bf16 CPUs
    assert len({"amx_bf16" in record.data["machine"]["cpu_features"] for record in found}) == 2
    for record in found:
        speed = {name: claim.get("value") for name, claim in record.data["claims"].items()}
        int8 = [speed[f"{way}-many"] for way in ("int8", "onnx-int8", "openvino-int8")]
        with_amx = "amx_bf16" in record.data["machine"]["cpu_features"]
        assert (speed["openvino-bf16-many"] > max(int8)) == with_amx, record.machine
        assert speed["openvino-bf16-one"] < speed["onnx-int8-one"], record.machine


def test_a_saved_graph_is_rounded_to_16_bits_unless_told_otherwise_and_holds_no_options(ran):
    import openvino

    defined, _ = ran("openvino_run.py")
    inputs = [defined["ids"].numpy(), defined["mask"].numpy()]
    openvino.save_model(defined["graph"], "rounded.xml")
    kept, rounded = (
        openvino.Core().compile_model(path, "CPU", defined["options"])(inputs)[0]
        for path in ("model.xml", "rounded.xml")
    )
    assert abs(kept - defined["logits"]).max() < 1e-6 < abs(rounded - defined["logits"]).max()
    assert Path("rounded.bin").stat().st_size < 0.6 * Path("model.bin").stat().st_size
    again = openvino.Core().compile_model("model.xml", "CPU")
    assert defined["compiled"].get_property("INFERENCE_NUM_THREADS") == 1
    assert again.get_property("INFERENCE_NUM_THREADS") != 1 or os.cpu_count() == 1


def test_int8_generates_more_tokens_than_bf16_and_fp32_at_every_batch_size_and_bf16_is_nearest_at_64():
    for record in records.load_all(ROOT / "results")["cpu_inference"]:
        columns = list(record.data["tables"]["batching"]["columns"])
        rows = [dict(zip(columns, row, strict=True)) for row in record.data["tables"]["batching"]["rows"]]
        assert all(row["int8"] > max(row["fp32"], row["bf16"] or 0) for row in rows), record.machine
        lead = {row["batch"]: row["int8"] / row["bf16"] for row in rows if row["bf16"]}
        assert not lead or min(lead, key=lead.get) == 64, record.machine


def test_openvino_with_int8_weights_gains_more_than_dynamic_int8_of_pytorch_with_avx512_and_less_without():
    found = records.load_all(ROOT / "results")
    dynamic = {record.machine: record.data["claims"]["dynamic-later"]["value"] for record in found["cpu_inference"]}
    for record in found["optimum_intel"]:
        speed = [record.data["claims"][name]["value"] for name in ("int8-speed", "generation-speed")]
        gains_more = speed[0] * speed[1] > dynamic.get(record.machine, 1)
        assert min(speed) > 1 and gains_more == ("avx512f" in record.data["machine"]["cpu_features"]), record.machine


def test_openvino_chooses_bf16_by_itself_where_the_cpu_has_it(ran):
    import openvino

    graph = ran("openvino_run.py")[0]["graph"]
    chosen = openvino.Core().compile_model(graph, "CPU").get_property("INFERENCE_PRECISION_HINT")
    capabilities = torch.cpu.get_capabilities()
    native = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    assert chosen == (openvino.Type.bf16 if native else openvino.Type.f32)


# GGUF


@pytest.mark.filterwarnings("ignore")
def test_a_llama_in_gguf_becomes_fp32_numbers(tmp_path, run_snippet, monkeypatch):
    source = next(
        c.source for c in jupytext.read(ROOT / "notebooks" / "cpu_inference.py").cells if "def gguf_file" in c.source
    )
    defined = {"torch": torch}
    exec(source.split("\n\ndef gguf_growth")[0], defined)
    path = defined["gguf_file"](llama(), tmp_path / "model.gguf")
    monkeypatch.setattr(sys, "argv", ["gguf_load.py", str(tmp_path), path.name])
    loaded, printed = run_snippet("cpu_inference/gguf_load.py")
    assert {parameter.dtype for parameter in loaded["model"].parameters()} == {torch.float32}
    assert "torch.float32" in printed
    assert loaded["model"].get_memory_footprint() > 3 * path.stat().st_size


def test_few_architectures_keep_their_blocks_and_only_where_a_kernel_is(monkeypatch, caplog):
    assert set(GGUF_ARCHS) == {"qwen35", "qwen35moe", "lfm2"}
    monkeypatch.setattr(quantizer_gguf, "get_gguf_kernel", lambda: False)
    monkeypatch.setattr(quantizer_gguf, "is_kernels_available", lambda: False)
    quantizer = quantizer_gguf.GgufHfQuantizer(transformers.GgufConfig("model.gguf"))
    quantizer.supported, quantizer.header = True, type("Header", (), {"has_quantized_weights": True})
    said = []
    monkeypatch.setattr(quantizer_gguf.logger, "warning", said.append)
    quantizer.validate_environment()
    assert quantizer.quantization_config.dequantize
    assert said == [(ERRORS / "gguf_unpacked.txt").read_text().strip()]


def test_gguf_needs_its_package(monkeypatch):
    from transformers import modeling_gguf_pytorch_utils as loader

    monkeypatch.setattr(loader, "is_gguf_available", lambda: False)
    monkeypatch.setattr(loader.logger, "error", lambda text: None)
    assert raised(loader.load_gguf_checkpoint, "model.gguf") == error("gguf_missing")


# Serving


def test_serve_knows_the_options_of_the_page_and_says_what_is_missing(monkeypatch):
    known = set(inspect.signature(serve.Serve.__init__).parameters)
    words = (SNIPPETS / "serve.sh").read_text().split()
    given = {word.removeprefix("--") for word in words if word.startswith("--")}
    assert given == {"device", "dtype", "port"} and given <= known
    assert "force_model" in known
    monkeypatch.setattr(serve, "is_serve_available", lambda: False)
    assert raised(serve.Serve, "model") == error("serve_missing")


# What is gone


@pytest.mark.parametrize("name", ["jit_mode_eval", "use_ipex"])
def test_the_arguments_of_older_recipes_are_gone(name):
    assert raised(TrainingArguments, "out", **{name: True}) == error(name)


def test_bettertransformer_is_gone_and_sdpa_is_the_default():
    assert raised(lambda: llama().to_bettertransformer()) == error("bettertransformer")
    assert llama().config._attn_implementation == "sdpa"


def test_the_ipex_backend_is_gone_from_torch_compile():
    assert "ipex" not in torch._dynamo.list_backends()


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torchscript_is_deprecated():
    with pytest.warns(DeprecationWarning, match="torch.jit.trace. is deprecated"):
        torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))


# AVX2 alone


def test_with_avx2_alone_none_of_the_four_gains_speed_and_dynamic_int8_of_pytorch_does():
    found = [
        record.data["claims"]
        for record in records.load_all(ROOT / "results")["cpu_inference"]
        if record.data["machine"]["cpu_features"] == ["avx2"]
    ]
    assert found
    for claims in found:
        for way in ("torchao-weights", "torchao-dynamic", "bnb-int8", "nf4"):
            assert max(claims[f"{way}-first"]["value"], claims[f"{way}-later"]["value"]) < 1, way
        assert min(claims["dynamic-first"]["value"], claims["dynamic-later"]["value"]) > 1
        assert claims["torchao-dynamic-first"]["value"] == min(
            claims[name]["value"] for name in claims if name.endswith(("-first", "-later")) and "value" in claims[name]
        )


# The notebooks, on hardware that this machine is not


@pytest.mark.parametrize("notebook", ["cpu_inference", "exported_models"])
def test_the_notebook_says_what_the_machine_lacks_and_goes_on(notebook, capsys):
    defined = cell(notebook, "def lacks", "def attempt")
    good, bad = (2, 1) if notebook == "cpu_inference" else ("/usr/bin/g++", None)
    assert defined["lacks"](["avx512_bf16", "avx512_vnni"], good) == {}
    assert defined["lacks"](["amx_bf16", "amx_int8"], good) == {}
    missing = defined["lacks"](["avx2"], bad)
    assert set(missing) == {"bf16", "cores" if notebook == "cpu_inference" else "compile"}
    assert missing["bf16"] == "this CPU has no bf16 instructions"


@pytest.mark.parametrize("notebook", ["cpu_inference", "exported_models"])
def test_an_export_that_fails_is_a_result(notebook, capsys):
    def fails():
        raise ValueError("no such operator\nand a long trace")

    attempt = cell(notebook, "def lacks", "def attempt")["attempt"]
    assert attempt("The export", fails) == (None, "ValueError: no such operator")
    assert capsys.readouterr().out == "The export does not work here. ValueError: no such operator\n"
    assert attempt("The export", lambda: 7) == (7, None)
