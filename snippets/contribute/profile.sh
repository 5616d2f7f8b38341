MODELS=qwen3-8b make profiles
