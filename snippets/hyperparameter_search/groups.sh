#!/usr/bin/env bash
for group in 0,1 2,3; do
  CUDA_VISIBLE_DEVICES=$group torchrun --standalone --nproc-per-node 2 ddp.py & # standalone: each group takes a free port
done
wait
