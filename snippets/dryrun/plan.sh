dryrun plan llama3-8b --gpu a100-sxm4-40 --gpus 8 --checkpointing
