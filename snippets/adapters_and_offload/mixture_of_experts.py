"""Total and active parameters of a mixture-of-experts model, and the memory of a training step, without a GPU."""
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from dryrun.tracing import GiB, training_step

# Or the configuration of any checkpoint: AutoConfig.from_pretrained("Qwen/Qwen3-30B-A3B")
config = Qwen3MoeConfig(
    vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4,
    head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, tie_word_embeddings=False,
)
with torch.device("meta"):  # shapes without memory
    model = AutoModelForCausalLM.from_config(config)
total = sum(parameter.numel() for parameter in model.parameters())
experts = sum(parameter.numel() for name, parameter in model.named_parameters() if ".experts." in name)
active = total - experts * (1 - config.num_experts_per_tok / config.num_experts)
print(f"{total / 1e9:.2f} billion parameters, {active / 1e9:.2f} billion active per token")

step = training_step(AutoModelForCausalLM, config, batch_size=1, sequence_length=512, dtype=torch.bfloat16)
print(f"full fine-tuning in bf16 with AdamW: peak {step.peak_gib:.0f} GiB")
print(f"frozen weights in bf16: {2 * total / GiB:.0f} GiB")
