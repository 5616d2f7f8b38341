#!/usr/bin/env bash
# bash accelerate_mpi.sh train.py     Needs an mpirun. The file `hosts` has a line per node, for Open MPI "node1 slots=2".
set -euo pipefail

accelerate launch --cpu --mpirun_hostfile hosts --num_machines 2 --num_processes 4 \
  --main_process_ip node1 --main_process_port 29500 "$@" # change: node1, the first node
