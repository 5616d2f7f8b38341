"""Trains on the processor, in bf16 where it has the instructions for it."""
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

# --8<-- [start:guard]
BF16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")  # Intel; Intel and AMD; Arm; Arm


def bf16_instructions():
    """Those of them that this CPU has; an empty list means: stay in fp32."""
    has = torch.cpu.get_capabilities()  # torch 2.13
    return [name for name in BF16_INSTRUCTIONS if has.get(name)]
# --8<-- [end:guard]


config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
)
model = AutoModelForCausalLM.from_config(config)  # a checkpoint: from_pretrained("HuggingFaceTB/SmolLM2-135M")
ids = torch.randint(0, config.vocab_size, (64, 64))
data = [{"input_ids": row, "labels": row} for row in ids]

print(f"bf16 instructions: {', '.join(bf16_instructions()) or 'none'}; {torch.get_num_threads()} threads")
# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", per_device_train_batch_size=8,
    use_cpu=True,  # also on a machine with a GPU
    bf16=bool(bf16_instructions()),  # autocast; the weights stay fp32
)
# --8<-- [end:arguments]
Trainer(model=model, args=arguments, train_dataset=data).train()
