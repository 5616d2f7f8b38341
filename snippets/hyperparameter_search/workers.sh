#!/usr/bin/env bash
python recover.py # at the first start it finds nothing to do
for gpu in 0 1; do
  CUDA_VISIBLE_DEVICES=$gpu python worker.py &
done
wait
