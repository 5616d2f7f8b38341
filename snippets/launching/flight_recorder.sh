#!/usr/bin/env bash
# Leaves, when NCCL's time-out comes, what every rank was doing; then compares them: bash flight_recorder.sh train.py
export TORCH_FR_BUFFER_SIZE=2000               # collectives to remember
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE=/tmp/fr/rank_   # change: the number of the rank is added; a folder that exists
torchrun --standalone --nproc-per-node 8 "$@" # change: GPUs
torchfrtrace /tmp/fr --prefix rank_
