python use_adapter.py Qwen/Qwen3-8B "What is the symbol of cobalt?"
