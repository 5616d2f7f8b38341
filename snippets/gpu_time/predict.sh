#!/usr/bin/env bash
# --8<-- [start:predict]
dryrun train llama3-8b --gpu rtx-4090 --length 2048 --lora 16 --checkpointing
# --8<-- [end:predict]
