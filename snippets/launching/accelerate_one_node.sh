#!/usr/bin/env bash
accelerate launch --multi_gpu --num_processes 2 train.py # change: GPUs of this machine
