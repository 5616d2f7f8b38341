#!/usr/bin/env bash
# The same hang, told by two tools: bash debug_stuck.sh detail, bash debug_stuck.sh flight
if [ "$1" = detail ]; then
  # --8<-- [start:detail]
  TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --standalone --nproc-per-node 2 stuck.py
  # --8<-- [end:detail]
else
  # --8<-- [start:flight]
  TORCH_FR_BUFFER_SIZE=2000 torchrun --standalone --nproc-per-node 2 stuck.py
  torchfrtrace flight --prefix rank_
  # --8<-- [end:flight]
fi
