#!/usr/bin/env bash
torchrun --standalone --nproc-per-node 2 train.py # change: GPUs of this machine
