vllm serve Qwen/Qwen3-8B --data-parallel-size 4
vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4
vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 2 --data-parallel-size 4
vllm serve meta-llama/Llama-3.1-70B-Instruct --pipeline-parallel-size 3
vllm serve Qwen/Qwen3-235B-A22B --tensor-parallel-size 8 --enable-expert-parallel
