pip install "transformers[serving]"
transformers serve Qwen/Qwen3-0.6B --device cpu --dtype bfloat16 --port 8000
