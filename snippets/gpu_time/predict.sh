#!/usr/bin/env bash
# --8<-- [start:predict]
python -m dryrun --model llama3-8b --gpu rtx-4090 --sequence 2048 --lora 16 --checkpointing
# --8<-- [end:predict]
