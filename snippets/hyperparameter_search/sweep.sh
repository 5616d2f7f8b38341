#!/usr/bin/env bash
# Once: `wandb sweep --project search sweep.yaml` prints the name of the sweep. Then, on each node: bash sweep.sh NAME
for gpu in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$gpu wandb agent "$1" & # one agent for each GPU
done
wait
