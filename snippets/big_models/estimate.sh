# The training step that the weights are for, traced at full size: weights, gradients, optimizer state and activations
dryrun train path/to/config.json --batch 1 --length 4096 --dtype bf16
