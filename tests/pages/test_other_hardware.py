"""docs/hardware/other.md: what the installed libraries say of hardware that no test has."""

import importlib
import re
import sys
from types import ModuleType, SimpleNamespace

import bitsandbytes
import pytest
import torch
import transformers
from accelerate import DistributedType
from bitsandbytes import backends
from built import ROOT
from programs import run
from torch._inductor.codegen import common
from torch.nn.attention import flex_attention
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices, _get_fused_kernels_supported_devices
from transformers import FineGrainedFP8Config, Mxfp4Config, modeling_flash_attention_utils
from transformers.quantizers import quantizer_finegrained_fp8, quantizer_mxfp4
from transformers.training_args import OptimizerNames
from transformers.utils import import_utils

PAGE = (ROOT / "docs" / "hardware" / "other.md").read_text()


def column(name):
    """{what: what the first table says of this hardware}."""
    section = PAGE.split("{ #works }")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    place = next(at for at, head in enumerate(rows[0]) if head.startswith(name))
    return {row[0]: row[place] for row in rows[2:]}


def test_the_versions_that_the_page_names_are_those_that_were_read():
    stated = re.search(
        r"torch ([\d.]+), transformers ([\d.]+), Accelerate [\d.]+, bitsandbytes ([\d.]+)\.$", PAGE, re.M
    )
    for version, package in zip(stated.groups(), (torch, transformers, bitsandbytes), strict=True):
        assert package.__version__.startswith(version)


def test_accelerate_has_a_distributed_type_for_each_but_apple():
    types = {each.value for each in DistributedType}
    assert {"MULTI_XPU", "MULTI_HPU", "MULTI_NPU", "MULTI_NEURON"} <= types
    assert not [each for each in types if "MPS" in each]
    assert column("Apple")["Several devices"] == "no"


def test_flash_attention_2_knows_intel_and_ascend_and_neither_apple_nor_gaudi():
    devices = {
        name for _, name in modeling_flash_attention_utils.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]["supported_devices"]
    }
    assert {"cuda", "xpu", "npu"} <= devices and not {"mps", "hpu"} & devices
    assert column("Gaudi")["`flash_attention_2`"] == "no"
    assert column("Apple")["`flash_attention_2`"] == "[another kernel](#apple)"


def test_bitsandbytes_names_these_devices_and_has_kernels_for_all_but_ascend():
    assert {"cuda", "xpu", "hpu", "npu", "mps"} <= bitsandbytes.supported_torch_devices
    folder = {path.name for path in type(ROOT)(backends.__path__[0]).iterdir()}
    assert {"xpu", "hpu", "mps"} <= folder and "npu" not in folder


def test_bitsandbytes_on_gaudi_reads_weights_and_does_nothing_else():
    importlib.import_module("bitsandbytes.backends.hpu.ops")
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("bitsandbytes::")]
    known = [name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "HPU")]
    assert len(names) > 10 and known == ["bitsandbytes::dequantize_4bit"]


def test_fp8_and_mxfp4_are_for_cuda_and_xpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: (9, 0))
    for device, runs in (("cuda", True), ("xpu", True), ("another", False)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda device=device: device == "cuda")
        monkeypatch.setattr(quantizer_finegrained_fp8, "is_torch_xpu_available", lambda device=device: device == "xpu")
        quantizer = quantizer_finegrained_fp8.FineGrainedFP8HfQuantizer(FineGrainedFP8Config(), pre_quantized=True)
        quantizer.validate_environment(device_map=device)
        assert quantizer.quantization_config.dequantize is not runs
    monkeypatch.undo()
    refused = []
    for device in ("cuda", "xpu", "cpu", "mps", "hpu", "npu"):
        monkeypatch.setattr(quantizer_mxfp4, "get_current_accelerator", lambda device=device: SimpleNamespace(type=device))
        try:
            quantizer_mxfp4.Mxfp4HfQuantizer(Mxfp4Config(), pre_quantized=False).validate_environment()
        except (RuntimeError, ValueError) as error:  # of a device that it takes, it may miss Triton or a newer GPU
            if "requires model on cuda/xpu/cpu" in str(error):
                refused.append(device)
    assert refused == ["mps", "hpu", "npu"]
    assert column("Intel")["MXFP4"] == "yes" and column("Apple")["MXFP4"] == "no"


def test_inductor_writes_code_for_intel_and_apple():
    common.init_backend_registration()
    assert {"cuda", "xpu", "mps"} <= set(common.device_codegens) and "hpu" not in common.device_codegens


def test_fused_adamw_runs_on_apple_intel_and_gaudi_and_foreach_not_on_apple():
    assert {"cuda", "xpu", "mps", "hpu"} <= set(_get_fused_kernels_supported_devices())
    assert {"cuda", "xpu"} <= set(foreach := _get_foreach_kernels_supported_devices()) and "mps" not in foreach
    assert OptimizerNames("adamw_torch_npu_fused")


def test_gaudi_is_taken_for_lazy_unless_one_says_otherwise(monkeypatch):
    """In lazy mode transformers imports Habana's package, which is not here."""
    monkeypatch.setattr(import_utils, "_is_package_available", lambda name, return_version=False: (True, "99.0"))
    for name, module in (("habana_frameworks", ModuleType("habana_frameworks")), ("habana_frameworks.torch", None)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("PT_HPU_LAZY_MODE", raising=False)
    with pytest.raises(ImportError, match=r"habana_frameworks\.torch"):
        import_utils.is_torch_hpu_available.__wrapped__()
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    assert import_utils.is_torch_hpu_available.__wrapped__() is False


def test_the_program_tries_everything_on_the_machine_at_hand():
    said = run("hardware/what_works.py").stdout
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    assert said.startswith(f"{device.type}, torch {torch.__version__}")
    tried = re.findall(r"^(.{26}) (yes|no: .+)$", said, re.M)
    assert len(tried) == 7
    if device.type == "cpu":
        assert {name.strip() for name, works in tried if works == "yes"} >= {
            "a step in fp32, SDPA",
            "a step in bf16, SDPA",
            "eager attention",
            "fused AdamW",
        }


def test_flex_attention_is_for_all_but_ascend_and_only_forward_on_apple():
    def told(device, trains):
        query = SimpleNamespace(device=SimpleNamespace(type=device), requires_grad=trains)
        try:
            flex_attention._validate_device(query, query, query)
        except (NotImplementedError, ValueError) as error:
            return str(error)

    assert not any(told(device, trains=False) for device in ("cuda", "cpu", "xpu", "hpu", "mps"))
    assert not any(told(device, trains=True) for device in ("cuda", "xpu", "hpu"))
    assert "FlexAttention does not support backward on MPS" in told("mps", trains=True)
    assert "Found input tensors on npu device" in told("npu", trains=False)
    assert column("Apple")["`flex_attention`"] == "forward only"
    assert column("Ascend")["`flex_attention`"].startswith("[no]")
