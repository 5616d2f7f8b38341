"""GRPO where the model may call a tool and read its result before it answers.

    python grpo_tools.py --model Qwen/Qwen3-8B --data prompts.jsonl
"""
import argparse
import re

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-8B", help="a model that was trained for tools")
parser.add_argument("--data", default="prompts.jsonl", help='a {"prompt": [...], "solution": "..."} in each line')
parser.add_argument("--vllm", choices=["colocate", "server"], help="vLLM writes: on these GPUs, or on others")
parser.add_argument("--tokens", type=int, default=1024, help="of an answer, calls and results included")
parser.add_argument("--steps", type=int, default=-1, help="-1: one epoch")
asked = parser.parse_args()


# --8<-- [start:tools]
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers.

    Args:
        a: the first number
        b: the second number

    Returns:
        Their product.
    """
    return a * b


def solved(completions, solution, **rest):
    """1 where the last number of the last message is the solution, else 0."""
    answers = [re.findall(r"-?\d+", completion[-1]["content"]) for completion in completions]
    return [float(bool(found) and found[-1] == right) for found, right in zip(answers, solution)]


trainer = GRPOTrainer(
    model=asked.model,
    reward_funcs=solved,
    tools=[multiply],  # the model sees name, types and docstring
    args=GRPOConfig(
        "grpo",
        model_init_kwargs={"dtype": "bfloat16"},
        max_completion_length=asked.tokens,
        max_tool_calling_iterations=3,  # no limit by default
        use_vllm=asked.vllm is not None,
        vllm_mode=asked.vllm or "colocate",
        max_steps=asked.steps,
        logging_steps=1,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
    ),
    train_dataset=load_dataset("json", data_files=asked.data, split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
# --8<-- [end:tools]
trainer.train()
trainer.save_model("adapter")
