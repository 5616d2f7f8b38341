dryrun train llama3-8b --gpu rtx-4090 --lora 16 --checkpointing --tokens 1e8
