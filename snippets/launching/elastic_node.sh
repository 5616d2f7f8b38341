#!/usr/bin/env bash
# One node or two, as many as are there: bash elastic_node.sh 0 on the first node, bash elastic_node.sh 1 on the second
set -euo pipefail
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
head=${HEAD:-localhost} # change: an address of node 0, which must stay: it holds the rendezvous
torchrun --nnodes 1:2 --nproc-per-node "${PROCESSES:-1}" --max-restarts 3 --rdzv-id elastic \
  --rdzv-backend c10d --rdzv-endpoint "$head:${PORT:-29500}" \
  --rdzv-conf "is_host=$(($1 == 0)),last_call_timeout=${LAST_CALL:-30}" --local-addr "${ADDRESS:-$(hostname)}" \
  train.py --steps "${STEPS:-1000}" --checkpoint "${CHECKPOINT:-/shared/run/checkpoint.pt}" # change: a path that all nodes see
