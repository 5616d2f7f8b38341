#!/usr/bin/env bash
# GBIT=1 bash slow_network.sh trainer.py     Two processes on one machine, as if a cable of 1 Gbit/s were between them.
set -euo pipefail
export RATE=$((2 * ${GBIT:-1}))gbit # the loopback device carries both directions, a cable carries each
export GLOO_SOCKET_IFNAME=lo

# A network of its own: nothing outside is slowed, and it is gone when the command ends
# shellcheck disable=SC2016
unshare --map-root-user --net bash -c '
  ip link set lo up
  tc qdisc add dev lo root tbf rate "$RATE" burst 256kb latency 50ms
  exec torchrun --standalone --nproc-per-node 2 "$@"' bash "$@"
