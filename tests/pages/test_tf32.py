"""docs/training/precision.md#tf32: what the two switches of torch do, and which of them are on."""

import subprocess
import sys

import pytest

FRESH = """
import torch
cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
{}
"""


def said(*lines):
    """What a fresh process prints: the switches belong to the process."""
    done = subprocess.run([sys.executable, "-c", FRESH.format("\n".join(lines))], capture_output=True, text=True, check=False)
    return done.stdout.split() or done.stderr


def test_tf32_is_off_for_products_and_on_for_convolutions():
    assert said("print(cuda.allow_tf32, cudnn.allow_tf32, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision)") == ["False", "True", "tf32", "tf32"]


@pytest.mark.parametrize(
    ("old", "new"), [("cuda.allow_tf32 = True", "cuda.fp32_precision"), ("cudnn.allow_tf32 = True", "cudnn.conv.fp32_precision")]
)
def test_the_old_switch_sets_the_new_one(old, new):
    assert said(old, f"print({new})") == ["tf32"]


def test_a_program_that_sets_the_new_one_and_reads_the_old_one_is_told():
    assert "mix of the legacy and new APIs to set the TF32 status" in said('cuda.fp32_precision = "tf32"', "cuda.allow_tf32")
