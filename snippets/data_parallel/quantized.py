"""QLoRA under DDP: one 4-bit copy of the model for each GPU.

torchrun --nproc-per-node 2 quantized.py
"""

import os
import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, Trainer, TrainingArguments

local_rank = int(os.environ.get("LOCAL_RANK", 0))
gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
if gpu:  # Llama, 1 billion parameters
    config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32)
else:  # a small one, which a CPU trains in seconds
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
ids = torch.randint(0, config.vocab_size, (16, 128))
data = [{"input_ids": row, "labels": row} for row in ids]

with tempfile.TemporaryDirectory() as checkpoint:  # stands for a checkpoint of the Hub
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(checkpoint)

    # --8<-- [start:load]
    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint,
        quantization_config=quantization,
        dtype=torch.bfloat16,
        device_map={"": local_rank if gpu else "cpu"},  # this rank's GPU; "auto" would spread one copy over all
    )
    # --8<-- [end:load]

model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
arguments = TrainingArguments(
    "out",
    max_steps=4,
    save_strategy="no",
    use_cpu=not gpu,
    per_device_train_batch_size=2,
    logging_steps=1,
    bf16=True,
    activation_checkpointing=True,
    learning_rate=2e-4,
    ddp_find_unused_parameters=False,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
if trainer.is_world_process_zero():
    linear = trainer.model.get_base_model().model.layers[0].self_attn.q_proj.base_layer
    print(f"{arguments.parallel_mode.value}: {arguments.world_size} copies in {linear.weight.dtype}")
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
