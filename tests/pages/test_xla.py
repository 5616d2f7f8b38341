"""docs/inference/xla.md: generation compiled by XLA."""


from programs import packages, run

from evidence.site.diagrams import buckets


def test_buckets_halve_the_programs_and_keep_the_tokens_of_pytorch():
    on_jax = {"PYTHONPATH": packages("tpu"), "JAX_PLATFORMS": "cpu"}
    plain, padded = run("xla/generate.py", environment=on_jax).stdout.splitlines()
    assert plain == "padded False: 6 programs, same tokens as PyTorch: True"
    assert padded == "padded True: 3 programs, same tokens as PyTorch: True"
    assert (buckets.programs(padded=False), buckets.programs(padded=True)) == (6, 3), "the drawing is of this program"
