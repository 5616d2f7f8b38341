"""docs/inference/exported-models.md#optimum: the two packages that need an older transformers, each in an environment apart."""

import ast
import os
from pathlib import Path

import pytest
from programs import packages, run

from evidence import notebooks
from evidence.problems import Problem


@pytest.mark.parametrize("name", ["cpu_inference/optimum_onnx.py", "cpu_inference/optimum_intel.py"])
def test_an_exported_decoder_generates(name):
    own = packages(Path(name).stem)  # instead of the virtual environment that the page makes
    (tokens,) = ast.literal_eval(run(name, environment={"PYTHONPATH": own}).stdout.splitlines()[-1])
    assert tokens[:3] == [1, 2, 3]
    assert 3 < len(tokens) <= 11


def test_a_notebook_whose_packages_are_missing_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("requirements").mkdir()
    Path("requirements/optimum-onnx.txt").touch()
    with pytest.raises(Problem, match=r"not in \.venv/optimum-onnx.*make install"):
        notebooks.own_packages("optimum_onnx")
    assert notebooks.own_packages("one_gpu") is None


def test_the_kernel_of_such_a_notebook_finds_its_own_packages_first(monkeypatch):
    packages("optimum_onnx")
    monkeypatch.setenv("PYTHONPATH", "shared")
    first, second = notebooks.kernel_path("optimum_onnx").split(os.pathsep)
    assert first.endswith("optimum-onnx") and second == "shared"
    assert notebooks.kernel_path("one_gpu") == "shared"
