#!/usr/bin/env bash
export CUDA_DEVICE_ORDER=PCI_BUS_ID # number the GPUs as nvidia-smi does
export CUDA_VISIBLE_DEVICES=2,3     # change: ranks 0 and 1 of this node see these as cuda:0 and cuda:1
torchrun --standalone --nproc-per-node 2 train.py
