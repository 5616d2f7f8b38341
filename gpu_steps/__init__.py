"""Steps that were predicted first, and then measured on a GPU of our own: `make gpu` on the machine that has it.

`predicted.json` is written before (`python -m gpu_steps predict`), `run` measures, one process for each step. `fitting` takes no
constant from what is measured here: it judges the constants.
"""
