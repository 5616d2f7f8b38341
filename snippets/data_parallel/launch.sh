torchrun --nproc-per-node 2 trainer.py      # two processes on this machine: DDP
CUDA_VISIBLE_DEVICES=0 python trainer.py    # one GPU, on purpose
nvidia-smi topo -m                          # how the GPUs are connected
NCCL_DEBUG=INFO torchrun --nproc-per-node 2 allreduce_speed.py  # which way NCCL takes, and how fast it is
