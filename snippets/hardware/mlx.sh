#!/usr/bin/env bash
# --8<-- [start:mlx]
pip install "mlx-lm[train]"
mlx_lm.lora --model mistralai/Mistral-7B-v0.1 --train --data data --batch-size 1 --num-layers 4 --grad-checkpoint
mlx_lm.generate --model mistralai/Mistral-7B-v0.1 --adapter-path adapters --prompt "SELECT"
# --8<-- [end:mlx]
