"""Direct preference optimization by LoRA: the model learns to prefer the better of two answers.

    python dpo.py --model Qwen/Qwen3-8B --data pairs.jsonl
"""
import argparse

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-8B", help="a model of the Hub, or a folder")
parser.add_argument("--data", default="pairs.jsonl", help='a {"prompt": [...], "chosen": [...], "rejected": [...]} in each line')
parser.add_argument("--full", action="store_true", help="train all weights")
parser.add_argument("--steps", type=int, default=-1, help="-1: one epoch")
asked = parser.parse_args()

adapter = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
# --8<-- [start:train]
trainer = DPOTrainer(
    model=asked.model,
    args=DPOConfig(
        "dpo",
        max_length=2048,  # by default 1,024: prompt and answer together
        per_device_train_batch_size=1,  # one pair, which is two sequences
        gradient_accumulation_steps=16,
        learning_rate=1e-6 if asked.full else 1e-5,
        model_init_kwargs={"dtype": "float32" if asked.full else "bfloat16"},
        precompute_ref_log_probs=asked.full,  # no second model while it trains
        num_train_epochs=1,
        max_steps=asked.steps,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
    ),
    train_dataset=load_dataset("json", data_files=asked.data, split="train"),
    peft_config=None if asked.full else adapter,
)
trainer.train()
trainer.save_model("preferred")
# --8<-- [end:train]
