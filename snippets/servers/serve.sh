pip install "transformers[serving]"
transformers serve Qwen/Qwen3-8B --continuous-batching --device cuda --dtype auto --port 8000
