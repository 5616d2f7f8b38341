MODELS="gpt2 qwen3" make profiles
