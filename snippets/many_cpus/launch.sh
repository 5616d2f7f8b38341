#!/usr/bin/env bash
# bash launch.sh trainer.py     One machine with two sockets.
set -euo pipefail

# --no-python: each rank is started as `bash bind.sh python trainer.py`, which binds it to its cores
torchrun --standalone --nproc-per-node 2 --no-python bash "$(dirname "$0")/bind.sh" python "$@"
