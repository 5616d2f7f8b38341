#!/usr/bin/env bash
# bash bind_numa.sh COMMAND...     Started once per rank. Rank 0 gets the cores and the memory of NUMA node 0, and so on.
set -euo pipefail

export OMP_NUM_THREADS=28 # change: physical cores of a NUMA node (lscpu)
exec numactl --cpunodebind="$LOCAL_RANK" --membind="$LOCAL_RANK" "$@"
