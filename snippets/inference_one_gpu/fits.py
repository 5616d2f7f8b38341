"""Will it fit? Counts weights and KV cache of a model, without its weights and without a GPU."""
import torch
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, Qwen3Config

# With the Hub: config = AutoConfig.from_pretrained("Qwen/Qwen3-8B")
config = Qwen3Config(vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
                     num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=False)

# --8<-- [start:count]
GPU = 23.5 * 2**30  # bytes; of yours: torch.cuda.get_device_properties(0).total_memory
RESERVE = 2 * 2**30  # prompt, CUDA context, rounding

with torch.device("meta"):  # shapes, no data
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def cache_bytes(tokens):
    """What the cache object of this model holds after so many tokens: right for GQA, MLA, sliding and linear layers."""
    ids = torch.zeros(1, tokens - 1, dtype=torch.long, device="meta")
    with torch.no_grad():
        cache = model(ids, use_cache=True, logits_to_keep=1).past_key_values
        model(ids[:, :1], past_key_values=cache)  # one more: sliding layers drop what left the window
    tensors = tree_leaves([vars(layer) for layer in cache.layers])  # keys and values, or the states of linear layers
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors if isinstance(tensor, torch.Tensor))


for tokens in (2048, 8192, 32768):
    cache = cache_bytes(tokens)
    sequences = int((GPU - RESERVE - weights) // cache)
    print(f"weights {weights / 2**30:.1f} GiB, cache of {tokens} tokens {cache / 2**30:.2f} GiB: room for {sequences}")
# --8<-- [end:count]
