dryrun train llama3.2-1b --gpu rtx-4090 --checkpointing --measured 8,100
