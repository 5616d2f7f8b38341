"""What a published row ran, as a `Workload` on a `Setting`: the one place that reads the schema of `data/published.json`.

An unknown model or GPU is a ValueError of one line, so that the other rows go on.
"""

import json

from dryrun.cost.decoding import UNEXPLAINED
from dryrun.cost.roofline import BEFORE_AMPERE, processor
from dryrun.cost.setting import Setting
from dryrun.step.workload import Workload
from dryrun.tables.formats import WEIGHT_BYTES

# Frameworks that run PyTorch's operators one by one. All others have fused kernels, launched from C++ or CUDA graphs.
EAGER_FRAMEWORKS = (
    "pytorch",
    "transformers",
    "accelerate",
    "deepspeed",
    "peft",
    "trl",
    "unsloth",
    "flexgen",
    "lightning",
)
FUSED_IN_PYTHON = ("autoawq",)  # fused kernels that Python launches one by one
ENGINES = ("tinychat", "exllamav2", "tensorrt-llm", "sglang", "turbomind", "lmdeploy")  # they replay CUDA graphs, or launch far ahead
LAUNCHES_AHEAD = "2025"  # llama.cpp of before launches kernel by kernel; since then it is what `infer` predicts
SERVERS = ("vllm",)  # and a scheduler in Python runs between two of them
ASYNCHRONOUS = "2025"  # since then vLLM's scheduler is a process of its own: https://vllm.ai/blog/2025-01-27-v1-alpha-release
OWN_ATTENTION = ("megatron",)  # it brings kernels of cuDNN, newer than FlashAttention 2
MOST_PREFILL = 0.05  # of the time of a served token, as its source's lengths let one estimate
KINDS = {"prefill": "forward"}
NOT_BEFORE_AMPERE = ("bf16", "fp8", "mxfp8")
HALF = ("bf16", "fp16", "nf4", "int4", "int8", "fp8", "mxfp8", "nvfp4", "mxfp4", "q4", "q8")
FOUR_BIT_PRODUCTS = ("nvfp4", "mxfp4")
OLD_MODELS = ("bert", "vit")


def run_of(row):
    """(Workload, Setting) of a published row. Raises ValueError in one line where it cannot be predicted."""
    kind = _kind(row)
    for name in ("gpu", "model", "batch", "precision"):
        if row.get(name) is None:
            raise ValueError(f"{name} is not stated")
    refused = _refused(row, kind, processor(row["gpu"]))
    if refused:
        raise ValueError(refused)
    parallel = _parallel(row)
    method = row.get("method") if isinstance(row.get("method"), dict) else {}
    quantized = str(method.get("quant") or "")
    precision = row["precision"]
    weights, autocast = _dtypes(precision)
    fused = bool(row.get("compiled")) or _fuses(row) or bool(row.get("fused_kernels"))
    workload = Workload(
        model=json.dumps({"name": row["model"], **row["config"]}, sort_keys=True)
        if row.get("config")
        else row["model"],
        batch=_whole(row, "batch"),
        length=_length(row, kind),
        kind=kind,
        weights=weights,
        autocast=autocast,
        checkpointing=int(row.get("checkpointing") or 0),
        attention=_attention(row, kind),
        compiled=fused,
        rank=(method.get("rank") or 16) if method else 0,
        targets=method.get("targets", "") if method else "",
        four_bit=bool(quantized) and quantized != "None",
        loss=row.get("loss", "model") if kind == "train" else "model",
        fused_loss=bool(row.get("fused_loss")),
    )
    return workload, Setting(
        gpu=row["gpu"],
        gpus=row["gpus"] or 1,
        gpus_per_node=row.get("gpus_per_node") or min(row["gpus"] or 1, 8),
        accumulation=row.get("accumulation") or 1,
        optimizer=row.get("optimizer") or "",
        state=_state(row, parallel["strategy"]),
        precision=precision,
        host=_host(row, kind),
        weight_bytes=_weight_bytes(precision),
        whole_model=precision.startswith(("q4", "q8")),
        link=1e9 * (row.get("link_gb_per_s") or 0),
        context=_context(row) if kind == "decode" else 0,
        even=row.get("even_stages", True),
        buckets=row.get("gradient_buckets", True),
        eager_loss=bool(row.get("eager_loss")),
        attention=row.get("attention_kernel") or ("" if row.get("framework") in OWN_ATTENTION else "flash"),
        **parallel,
    )


def _kind(row):
    kind = KINDS.get(row["kind"], row["kind"])
    if kind == "memory" and "train" in row["klass"]:
        return "train"
    if kind not in ("train", "forward", "decode"):
        raise ValueError(f"kind {kind!r} is not predicted: train, forward and decode are")
    return kind


def _refused(row, kind, gpu):
    """Why there is no prediction for such a run, or None."""
    precision = row["precision"]
    if row.get("offload"):
        return "offload to the host is not predicted"
    if kind == "forward" and _weight_bytes(precision) < 1:
        return "a prefill with 4-bit weights is not predicted"
    if kind == "forward" and row.get("framework") == "llama.cpp":
        return "a prefill with llama.cpp's own kernels is not predicted"
    if kind == "decode" and (row.get("prefill_share") or 0) > MOST_PREFILL:
        return f"prefills of other requests are more than {100 * MOST_PREFILL:.0f} % of its time, and decoding alone is predicted"
    if kind == "decode" and gpu.name in UNEXPLAINED:
        return f"decoding on {gpu.name}: {UNEXPLAINED[gpu.name]}"
    if kind == "decode" and precision.startswith("nf4"):
        return "decoding with bitsandbytes is not predicted"
    if kind != "decode" and precision.startswith(FOUR_BIT_PRODUCTS):
        return f"products in {precision} are not predicted"
    if kind == "train" and precision.startswith(NOT_BEFORE_AMPERE) and gpu.architecture in BEFORE_AMPERE:
        return f"{gpu.name} has no {precision}"
    return None


def _whole(row, name):
    value = row[name]
    if not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ValueError(f"{name}={value!r}: a whole number from 1 to 1,000,000 is expected")
    return value


def _length(row, kind):
    if kind == "decode":
        return 1
    length = row.get("seq")
    if length is None:
        if "vit" in row["model"] or "beit" in row["model"] or "clip" in row["model"]:
            return 0
        raise ValueError("seq is not stated")
    if not isinstance(length, int) or not 0 <= length <= 10_000_000:
        raise ValueError(f"seq={length!r}: a whole number up to 10,000,000 is expected")
    return length


def _state(row, strategy):
    """How weights and their moments are kept: under FSDP trainers keep fp32 weights beside products in 16 bits, where a row says nothing else."""
    if row["precision"] == "fp16_o2":
        return "master"
    narrow = _dtypes(row["precision"])[0] != "float32"
    return "fp32" if strategy == "fsdp2" and narrow and row.get("master_weights", "fp32") == "fp32" else ""


def _dtypes(precision):
    """(dtype of the weights, dtype of autocast)."""
    if precision.startswith("amp"):
        return "float32", "bfloat16"
    if precision in ("fp32", "tf32"):
        return "float32", ""
    if not precision.startswith(HALF):
        raise ValueError(f"precision {precision!r} is not predicted")
    return "bfloat16", ""  # fp16 and bf16 run the same kernels


def _attention(row, kind):
    if row.get("attention") != "eager":
        return "fused"
    old = (
        row["model"].startswith(OLD_MODELS)
        and kind != "decode"
        and "pytorch-image-models" not in str(row.get("source"))
    )
    return "old" if old else "eager"


def _fuses(row):
    """Whether the framework runs fused kernels of its own, as everything does that is not eager PyTorch."""
    return not str(row.get("framework") or "pytorch").lower().startswith(EAGER_FRAMEWORKS)


def _host(row, kind):
    if kind == "decode" and row.get("framework") in SERVERS:
        return "server" if (row.get("date") or "") >= ASYNCHRONOUS else "old server"
    if row.get("framework") in ENGINES:
        return "engine"
    if kind == "decode" and row.get("framework") == "llama.cpp" and (row.get("date") or "") >= LAUNCHES_AHEAD:
        return "llama.cpp"
    if (
        row.get("cudagraph")
        or (kind == "decode" and row.get("compiled") and not _fuses(row))
    ):
        return "graphs"
    if row.get("framework") == "megatron":
        return "megatron"
    if _fuses(row) and row.get("framework") not in FUSED_IN_PYTHON:
        return "c++"
    return "script" if row.get("torchscript") else "eager"


def _weight_bytes(precision):
    if precision in WEIGHT_BYTES:
        return WEIGHT_BYTES[precision]
    if precision.startswith("q4"):
        return WEIGHT_BYTES["q4_k_m"]
    return 1.0 if precision.startswith(("fp8", "mxfp8", "int8", "q8")) else 2.0


def _context(row):
    """Tokens in the KV cache in the middle of a generation: the prompt that the row states and half of what is generated. Where a row
    states what is generated, its `seq` is that mean already."""
    if row.get("output"):
        return row["seq"]
    generated = {"pytorch": 200, "llama.cpp": 1024}.get(row.get("framework"), 128)
    return (row.get("seq") or 0) + generated // 2


def _parallel(row):
    """strategy, tensor, pipeline and its virtual stages of a row."""
    stated, count = row.get("parallel") or {}, row["gpus"] or 1
    if stated.get("cp", 1) > 1:
        raise ValueError("context parallelism is not predicted")
    tensor, pipeline = stated.get("tp", 1), stated.get("pp", 1)
    if stated.get("ep", 1) > 1 and not (row["kind"] == "decode" and stated["ep"] == tensor == count):
        raise ValueError("expert parallelism is not predicted, but for decoding where all GPUs of a node split both")
    if row.get("klass") in ("train-tp",) and not stated:
        raise ValueError("tensor parallelism of unstated degree is not predicted")
    if "layers_in_turn" in stated or "layers-split" in str(row.get("klass")):
        return {"strategy": "", "tensor": 1, "pipeline": 1, "virtual_stages": 1}  # one GPU after the other: as if one had all layers
    if row.get("kind") in ("decode", "forward") and count > 1 and tensor == 1:
        tensor = count
    data = count // (tensor * pipeline)
    sharded = "fsdp" in stated or stated.get("zero") == 3 or "fsdp" in str(row.get("klass"))
    strategy = "" if data <= 1 else "fsdp2" if sharded or not stated else "ddp"
    return {"strategy": strategy, "tensor": tensor, "pipeline": pipeline, "virtual_stages": stated.get("vp", 1) if pipeline > 1 else 1}
