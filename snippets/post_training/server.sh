# GPUs 6 and 7 write, GPUs 0 to 5 learn; in GRPOConfig: use_vllm=True, vllm_mode="server"
CUDA_VISIBLE_DEVICES=6,7 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2 \
  --weight-transfer-config '{"backend": "nccl"}' --logprobs-mode processed_logprobs --max-logprobs -1 &
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 accelerate launch --num_processes 6 grpo.py --model Qwen/Qwen3-8B --data prompts.jsonl --vllm server
