# Two nodes of 8 GPUs: each layer over the GPUs of a node, half of the layers on each node. On the first node:
vllm serve "$MODEL" --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --node-rank 0 --master-addr "$FIRST"
# On the second:
vllm serve "$MODEL" --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --node-rank 1 --master-addr "$FIRST" --headless
