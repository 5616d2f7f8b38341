#!/usr/bin/env bash
# mpirun ... bash mpi_rank.sh COMMAND...     Tells a rank who it is in the words of torch: Open MPI, MPICH, Intel MPI.
set -euo pipefail

export RANK=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?start this by mpirun}}
export WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:?}}
export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:?}}
export LOCAL_WORLD_SIZE=${OMPI_COMM_WORLD_LOCAL_SIZE:-${MPI_LOCALNRANKS:?}}
exec "$@"
