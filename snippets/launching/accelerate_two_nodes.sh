#!/usr/bin/env bash
# On every node, with its own number: bash accelerate_two_nodes.sh 0 (the head) and bash accelerate_two_nodes.sh 1
set -euo pipefail
head=10.0.0.1 # change: the address of node 0
accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank "$1" \
  --main_process_ip "$head" --main_process_port 29500 \
  train.py --checkpoint /shared/run/checkpoint.pt # change: processes of all nodes; a path that all nodes see
