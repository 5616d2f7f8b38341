# Unless told, vLLM leaves about 2 GiB of each GPU unused. Small steps and few sequences leave room for one long chat.
vllm serve hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4 --tensor-parallel-size 2 \
  --gpu-memory-utilization 0.97 --max-model-len 8192 --max-num-seqs 4 --max-num-batched-tokens 1024
