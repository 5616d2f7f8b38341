#!/usr/bin/env bash
# Rehearses a job of two nodes on one machine, one process each: bash two_nodes_here.sh train.py
set -euo pipefail
export GLOO_SOCKET_IFNAME=lo # the interface by which the ranks reach each other
port=${PORT:-29511}

for node in 0 1; do # on a cluster: once on each node, with the first node's name in place of localhost
  CUDA_VISIBLE_DEVICES=$node torchrun --nnodes 2 --nproc-per-node 1 --rdzv-id rehearsal \
    --rdzv-backend c10d --rdzv-endpoint "localhost:$port" --local-addr localhost "$@" &
done
wait -n # fails when an agent fails
wait -n
