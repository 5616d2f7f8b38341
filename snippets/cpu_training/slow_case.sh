# What a CPU with AVX-512 and without bf16 instructions does with bf16
ONEDNN_MAX_CPU_ISA=AVX512_CORE python train.py
