#!/usr/bin/env bash
# bash bind.sh COMMAND...     Started once per rank. Gives each rank an equal share of the cores, and as many threads.
set -euo pipefail

cores=$(nproc --all) # change: with hyper-threading, the number of physical cores
share=$((cores / LOCAL_WORLD_SIZE))
first=$((LOCAL_RANK * share))
export OMP_NUM_THREADS=$share
exec taskset --cpu-list "$first-$((first + share - 1))" "$@"
