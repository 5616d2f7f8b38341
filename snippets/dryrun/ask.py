"""Which of these GPUs trains LoRA of this model, and what do eight of them bring?"""

from dryrun import Cluster, Generation, Job, plan, predict

job = Job("qwen3-8b", method="lora", checkpointing=True, fused_loss=True)
for gpu in ("rtx-4090", "l40s", "a100-sxm4-80"):
    answer = predict(job, Cluster(gpu))
    print(f"{gpu}: {answer.verdict}, {answer.prediction.tokens_per_second:,.0f} tokens/s")

best = plan(job, Cluster("rtx-4090", gpus=8))[0]
print(f"8 x rtx-4090: {best.strategy}, {best.prediction.tokens_per_second:,.0f} tokens/s")

served = predict(Generation("qwen3-8b", prompt=3000, new=1000), Cluster("rtx-4090"))
print(f"generation: {served.verdict}, {served.users} sequences at once")
