# NV#: NVLink. PIX, PXB, PHB, NODE, SYS: PCIe, by ever longer ways.
nvidia-smi topo -m
# Each NVLink and its rate; nothing where there is none.
nvidia-smi nvlink --status
# What NCCL chose.
NCCL_DEBUG=INFO torchrun --nproc-per-node 2 measure_link.py 2>&1 |
  grep -E "via|NET/|GB/s"
