vllm serve merged --port 8000
# Or the original with the adapter beside it, which several adapters can share:
vllm serve Qwen/Qwen3-8B --enable-lora --lora-modules mine=adapter --port 8000
