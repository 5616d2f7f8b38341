#!/usr/bin/env bash
# Restarts the ranks when one fails: bash fault_tolerant.sh train.py
set -euo pipefail
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # else the ranks read addresses of the attempt before
torchrun --standalone --nproc-per-node 2 --max-restarts 3 --tee 3 --log-dir logs "$@"
