#!/usr/bin/env bash
# A file for each rank, and rank 0 on the screen: bash each_log.sh train.py
set -euo pipefail
torchrun --standalone --nproc-per-node 2 --log-dir logs --tee 3 --local-ranks-filter 0 "$@"
