.venv/bin/python -m dryrun.profile_trace qwen3-8b
