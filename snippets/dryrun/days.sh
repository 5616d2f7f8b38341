dryrun train llama3.2-1b --gpu rtx-4090 --gpus 4 --dtype mixed --checkpointing --fused-loss --compile --batch 6 --tokens 20e9 --price 0.40
