# Each engine in an environment of its own; its own torch and transformers come with it:
python3.12 -m venv vllm-env && vllm-env/bin/pip install vllm
python3.12 -m venv sglang-env && sglang-env/bin/pip install sglang

vllm-env/bin/vllm serve Qwen/Qwen3-8B --max-model-len 8192 --gpu-memory-utilization 0.9
sglang-env/bin/sglang serve --model-path Qwen/Qwen3-8B --context-length 8192 --mem-fraction-static 0.85
trtllm-serve Qwen/Qwen3-8B --max_seq_len 8192
