#!/usr/bin/env bash
# bash run_cpu.sh trainer.py     Binds by numactl, or taskset where there is none.
set -euo pipefail
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # change: physical cores per rank. run_cpu keeps what it finds

torchrun --standalone --nproc-per-node 2 -m torch.backends.xeon.run_cpu --ninstances 1 "$@"
