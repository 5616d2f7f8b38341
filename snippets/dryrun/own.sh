dryrun train llama:layers=24,hidden=2048,heads=16,ffn=5504,vocab=32000 --gpu rtx-4090 --gpus 4 --batch 4 --checkpointing --tokens 2e10
