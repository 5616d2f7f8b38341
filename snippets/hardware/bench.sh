#!/usr/bin/env bash
# --8<-- [start:bench]
dryrun bench --json bench.json
dryrun train llama3-8b --machine bench.json --lora 16 --checkpointing
# --8<-- [end:bench]
