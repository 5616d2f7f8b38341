"""docs/inference/xla.md: generation compiled by XLA."""


from programs import ROOT, run

from evidence import notebooks
from evidence.site.diagrams import buckets


def test_buckets_halve_the_programs_and_keep_the_tokens_of_pytorch():
    packages = {"PYTHONPATH": str(notebooks.own_packages("tpu")), "JAX_PLATFORMS": "cpu"}
    plain, padded = run("xla/generate.py", environment=packages).stdout.splitlines()
    assert plain == "padded False: 6 programs, same tokens as PyTorch: True"
    assert padded == "padded True: 3 programs, same tokens as PyTorch: True"
    assert (buckets.programs(padded=False), buckets.programs(padded=True)) == (6, 3), "the drawing is of this program"


def test_the_drawing_shows_the_prompts_and_the_buckets_of_the_program():
    source = (ROOT / "snippets" / "xla" / "generate.py").read_text()
    assert f"for length in {buckets.PROMPTS}]" in source and f"smallest={buckets.SMALLEST}" in source
    assert "max(smallest, 1 << (length - 1).bit_length())" in source
    assert [buckets.bucket(length) for length in buckets.PROMPTS] == [16, 16, 16, 32, 32]
