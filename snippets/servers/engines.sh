vllm serve Qwen/Qwen3-8B --max-model-len 8192 --gpu-memory-utilization 0.9
python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-length 8192 --mem-fraction-static 0.85
trtllm-serve Qwen/Qwen3-8B --max_seq_len 8192
