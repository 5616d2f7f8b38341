"""docs/inference/xla.md: generation compiled by XLA."""


from programs import run

from evidence import notebooks
from evidence.site.diagrams import buckets


def test_buckets_halve_the_programs_and_keep_the_tokens_of_pytorch():
    packages = {"PYTHONPATH": str(notebooks.own_packages("tpu")), "JAX_PLATFORMS": "cpu"}
    plain, padded = run("xla/generate.py", environment=packages).stdout.splitlines()
    assert plain == "padded False: 6 programs, same tokens as PyTorch: True"
    assert padded == "padded True: 3 programs, same tokens as PyTorch: True"
    assert (buckets.programs(padded=False), buckets.programs(padded=True)) == (6, 3), "the drawing is of this program"
