python finetune_8b.py --model Qwen/Qwen3-8B --data conversations.jsonl --held-out 50
