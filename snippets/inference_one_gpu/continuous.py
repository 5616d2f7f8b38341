"""Generates for many prompts with continuous batching: a finished answer makes room for the next prompt at once."""
import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, LlamaConfig

config = LlamaConfig(
    vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
    bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
gpu = torch.cuda.is_available()
model = AutoModelForCausalLM.from_config(config).to("cuda" if gpu else "cpu").eval()
torch.manual_seed(0)
prompts = [torch.randint(1, 1000, (length,)).tolist() for length in (5, 32, 12, 7)]  # lists of token ids

# --8<-- [start:generate]
batching = ContinuousBatchingConfig()  # on a GPU it sizes its cache by the free memory
if not gpu:
    batching = ContinuousBatchingConfig(num_blocks=8, page_size=32, max_batch_tokens=64)
# eos_token_id=-1: no answer ends early. With a checkpoint: model.generation_config.eos_token_id; left out it is -1.
found = model.generate_batch(
    prompts,
    generation_config=GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0),
    continuous_batching_config=batching,
)
failed = {name: answer.error for name, answer in found.items() if answer.error}  # errors are kept, and not raised
if failed or len(found) < len(prompts):
    raise RuntimeError(f"{len(prompts) - len(found) + len(failed)} of {len(prompts)} prompts failed: {failed}")
# --8<-- [end:generate]
print([len(answer.generated_tokens) for answer in found.values()])
