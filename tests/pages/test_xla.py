"""docs/inference/xla.md: generation compiled by XLA."""

import re

import yaml
from programs import ROOT, run

from evidence import notebooks

PAGE = ROOT / "docs" / "inference" / "xla.md"
QUESTIONS = yaml.safe_load((ROOT / "tests" / "data" / "questions_tpu.yml").read_text())


def test_buckets_halve_the_programs_and_keep_the_tokens_of_pytorch():
    packages = {"PYTHONPATH": str(notebooks.own_packages("tpu")), "JAX_PLATFORMS": "cpu"}
    plain, padded = run("xla/generate.py", environment=packages).stdout.splitlines()
    assert plain == "padded False: 6 programs, same tokens as PyTorch: True"
    assert padded == "padded True: 3 programs, same tokens as PyTorch: True"


def test_each_question_about_inference_has_its_section():
    sections = set(re.findall(r"\{ #([\w-]+) \}", PAGE.read_text()))
    asked = [question for question in QUESTIONS if question["page"] == "inference/xla"]
    assert len(asked) >= 4
    assert {question["section"] for question in asked} <= sections
