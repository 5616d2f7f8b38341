"""Is my throughput good? Model FLOPs utilization: what the model computes over what the GPU can compute.

    python mfu.py path/to/config.json --gpu "H100 80GB" --length 8192 --tokens-per-second 5762
"""
import argparse

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import dryrun
from dryrun.tracing import training_step


# --8<-- [start:mfu]
def active_parameters(config):
    """Of a mixture, each token uses only the experts that the router chooses."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config()  # of a model that takes pictures, the part for text
    experts = getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None) or 1
    used = getattr(text, "num_experts_per_tok", None) or getattr(text, "top_k_experts", None) or experts
    return sum(each.numel() * (used / experts if ".experts." in name else 1) for name, each in model.named_parameters())


def utilization(config, length, gpu, tokens_per_second):
    """By the rule of six FLOPs per active parameter and token, and by tracing a step, which counts attention in full."""
    step = training_step(AutoModelForCausalLM, config, 1, length, dtype=torch.bfloat16)
    traced = (step.flops["forward"] + step.flops["backward"]) / length
    peak = dryrun.gpu(gpu).half * 1e12  # dense, 16 bits
    return [flops * tokens_per_second / peak for flops in (6 * active_parameters(config), traced)]
# --8<-- [end:mfu]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--gpu", required=True, help="such as h100-sxm; `dryrun gpus` lists all")
    parser.add_argument("--length", type=int, required=True, help="tokens of a sequence")
    parser.add_argument("--tokens-per-second", type=float, required=True, help="of one GPU")
    given = parser.parse_args()
    config = AutoConfig.from_pretrained(given.config)
    rule, traced = utilization(config, given.length, given.gpu, given.tokens_per_second)
    print(f"MFU {rule:.0%} by the rule of six, {traced:.0%} with attention")
