torchrun --nproc-per-node 8 finetune_14b.py --model Qwen/Qwen2.5-14B-Instruct --data conversations.jsonl
