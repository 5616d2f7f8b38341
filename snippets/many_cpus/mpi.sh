#!/usr/bin/env bash
# bash mpi.sh train.py     Open MPI starts the ranks; they talk by gloo.
set -euo pipefail
export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} # change: the first node
export MASTER_PORT=${MASTER_PORT:-29500}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # change: physical cores per rank

# Open MPI sends its own variables to other nodes, and these only with -x. MPICH and Intel MPI send all of them.
mpirun -n 2 --bind-to none -x MASTER_ADDR -x MASTER_PORT -x OMP_NUM_THREADS bash "$(dirname "$0")/mpi_rank.sh" python "$@"
