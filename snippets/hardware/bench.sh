#!/usr/bin/env bash
# --8<-- [start:bench]
python -m dryrun bench --json bench.json
python -m dryrun --model llama3-8b --machine bench.json --lora 16 --checkpointing
# --8<-- [end:bench]
