"""Supervised fine-tuning by LoRA or QLoRA: the model learns the last answer of each conversation.

    python sft.py --model Qwen/Qwen3-8B --data conversations.jsonl --four-bit
"""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-8B", help="a model of the Hub, or a folder")
parser.add_argument("--data", default="conversations.jsonl", help='a {"prompt": [...], "completion": [...]} in each line')
parser.add_argument("--four-bit", action="store_true")
parser.add_argument("--steps", type=int, default=-1, help="-1: one epoch")
asked = parser.parse_args()

four_bit = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16,
)
# --8<-- [start:train]
trainer = SFTTrainer(
    model=asked.model,
    args=SFTConfig(
        "sft",
        model_init_kwargs={"dtype": "bfloat16"},  # by default fp32, which LoRA does not need
        max_length=2048,  # by default 1,024: what is longer is cut without a word
        per_device_train_batch_size=1,
        gradient_accumulation_steps=16,
        learning_rate=2e-4,
        num_train_epochs=1,
        max_steps=asked.steps,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
    ),
    train_dataset=load_dataset("json", data_files=asked.data, split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    quantization_config=four_bit if asked.four_bit else None,
)
trainer.train()
trainer.save_model("adapter")
# --8<-- [end:train]
