#!/usr/bin/env bash
# Leaves, when NCCL's time-out comes, what every rank was doing; then compares them: bash flight_recorder.sh train.py
mkdir -p flight                                     # where the ranks write
export TORCH_FR_BUFFER_SIZE=2000                    # collectives to remember
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE=$PWD/flight/rank_    # and the rank
torchrun --standalone --nproc-per-node 8 "$@"       # change: GPUs
torchfrtrace flight --prefix rank_
