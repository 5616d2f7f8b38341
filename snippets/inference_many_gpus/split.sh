torchrun --nproc-per-node 4 tensor_parallel.py
