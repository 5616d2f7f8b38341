export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # else a restarted rank reads addresses of the attempt before
accelerate launch --multi-gpu --num-processes 4 --max-restarts 3 many_prompts.py prompts.txt
