#!/usr/bin/env bash
# On every node, with its number and its own address, which the others reach:
# bash torchrun_node.sh 0 10.0.0.1 (the head) and bash torchrun_node.sh 1 10.0.0.2     change: the addresses
set -euo pipefail
head=10.0.0.1                       # change: an address of node 0 that the others reach, port 29500 open
# export NCCL_SOCKET_IFNAME=eth0    # change, where NCCL takes the wrong interface
# export GLOO_SOCKET_IFNAME=eth0    # the same for gloo
torchrun --nnodes 2 --nproc-per-node 8 --rdzv-id job1 --rdzv-backend c10d --rdzv-endpoint "$head:29500" \
  --rdzv-conf "is_host=$(($1 == 0))" --local-addr "$2" --max-restarts 0 \
  train.py --checkpoint /shared/run/checkpoint.pt # change: GPUs of a node; a path that all nodes see
