"""The peak memory of a training step of your model, without a GPU and without its weights."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from dryrun.tracing import GiB, training_step

# Or the configuration of any checkpoint: AutoConfig.from_pretrained("Qwen/Qwen3-8B")
config = LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=False,
)
step = training_step(
    AutoModelForCausalLM, config, batch_size=1, sequence_length=4096,
    dtype=torch.bfloat16, activation_checkpointing=True, optimizer="adamw",
)
print(f"{step.parameters / 1e9:.2f} billion parameters, peak {step.peak_gib:.1f} GiB")
for category, size in step.peak_by_category.items():
    print(f"{category:>15} {size / GiB:8.2f} GiB")
