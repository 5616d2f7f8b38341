#!/usr/bin/env bash
ray job submit --working-dir . -- python ray_train.py /shared/run # change: a folder that all nodes see
