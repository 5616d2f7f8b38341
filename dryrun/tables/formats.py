"""Formats that weights are stored in: bytes for each, with the scales that belong to them. No torch."""

WEIGHT_BYTES = {
    "bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "int8": 1.0, "q8_0": 8.5 / 8, "int4-32": 0.5 + 4 / 32, "int4-64": 0.5 + 4 / 64,
    "int4-128": 0.5 + 4 / 128, "q4_k_m": 4.85 / 8, "q4_0": 4.5 / 8, "fp8": 1.0, "nf4": 0.5 + 1 / 16,
    "nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32,
}  # fmt: skip
CALLED = {"awq": "int4-128", "gptq": "int4-128", "int4": "int4-128", "gguf": "q4_k_m", "q4": "q4_k_m", "q8": "q8_0"}  # by the names of their libraries
OF_LLAMA_CPP = ("q8_0", "q4_k_m", "q4_0")
WHOLE_MODEL = ("fp32", "q8_0", "q4_k_m", "q4_0")  # embedding and output layer too; elsewhere these stay in 16 bits

K_BLOCK = 256  # weights that a K-quant scales together: llama.cpp stores a matrix in Q5_0 or Q8_0 where its rows are no multiple of it
UNEVEN_ROWS = {"q4_k_m": ((5.5 + 8.5) / 2 - (4.5 + 6.5625) / 2) / 8}  # bytes more of each weight of such a down projection, Q4_K in half of the layers
