# Which kernel multiplies the matrices? A name with avx512_core_bf16 or amx is fast; gemm:jit is not.
ONEDNN_VERBOSE=1 python train.py | grep -o -E 'matmul,[a-z_]+:[a-z0-9_]+' | sort | uniq -c
