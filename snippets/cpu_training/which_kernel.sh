# Which kernel multiplies the matrices? amx or avx512_core_bf16 in its name: 16-bit instructions. gemm:jit: none, and slow.
ONEDNN_VERBOSE=1 python train.py | grep -o -E 'matmul,[a-z_]+:[a-z0-9_]+' | sort | uniq -c
