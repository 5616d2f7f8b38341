"""Group relative policy optimization by LoRA: the model writes answers, a function scores them, the model learns.

    python grpo.py --model Qwen/Qwen3-8B --data prompts.jsonl --vllm colocate
"""
import argparse
import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-8B", help="a model of the Hub, or a folder")
parser.add_argument("--data", default="prompts.jsonl", help='a {"prompt": [...], "solution": "..."} in each line')
parser.add_argument("--vllm", choices=["colocate", "server"], help="vLLM writes: on these GPUs, or on others")
parser.add_argument("--answers", type=int, default=8, help="to each prompt")
parser.add_argument("--tokens", type=int, default=512, help="of an answer at most")
parser.add_argument("--learning-rate", type=float, default=1e-5)
parser.add_argument("--steps", type=int, default=-1, help="-1: one epoch")
asked = parser.parse_args()


# --8<-- [start:reward]
def solved(completions, solution, **rest):
    """1 where the last number of the answer is the solution, else 0."""
    answers = [re.findall(r"-?\d+", completion[0]["content"]) for completion in completions]
    return [float(bool(found) and found[-1] == right) for found, right in zip(answers, solution)]
# --8<-- [end:reward]


# --8<-- [start:train]
trainer = GRPOTrainer(
    model=asked.model,
    reward_funcs=solved,
    args=GRPOConfig(
        "grpo",
        model_init_kwargs={"dtype": "bfloat16"},  # by default fp32, which LoRA does not need
        num_generations=asked.answers,
        max_completion_length=asked.tokens,
        per_device_train_batch_size=8,  # answers of a micro-batch
        gradient_accumulation_steps=8,  # also: 8 x 8 = 64 answers are written at once
        use_vllm=asked.vllm is not None,
        vllm_mode=asked.vllm or "colocate",
        vllm_enable_sleep_mode=True,  # on the same GPU, vLLM gives its memory back while the model learns
        learning_rate=asked.learning_rate,
        max_steps=asked.steps,
        logging_steps=1,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
    ),
    train_dataset=load_dataset("json", data_files=asked.data, split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
trainer.train()
trainer.save_model("adapter")
# --8<-- [end:train]
