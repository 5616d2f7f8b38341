"""Greedy generation compiled by XLA: one program per bucket of prompt lengths, and one for every later token."""
# --8<-- [start:load]
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchax
from torchax.interop import jax_view, torch_view
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

ROOM = 256  # prompt and answer together: the cache has this shape from the first token on

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=512, max_position_embeddings=ROOM, bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
model = LlamaForCausalLM(config).eval()  # yours: AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
# --8<-- [end:load]


# --8<-- [start:cache]
def empty_cache(rows):
    shape = (rows, config.num_key_value_heads, ROOM, config.head_dim)
    dtype = jnp.dtype(str(model.dtype).removeprefix("torch."))  # a checkpoint in bf16 has a cache in bf16
    return [(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.num_hidden_layers)]


def static_cache(arrays, filled):
    """The cache of transformers round arrays that a compiled function takes and returns."""
    cache = StaticCache(config, max_cache_len=ROOM)
    for layer, (keys, values) in zip(cache.layers, torch_view(arrays)):
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values, layer.cumulative_length = keys, values, torch_view(filled + 0)
    return cache
# --8<-- [end:cache]


# --8<-- [start:forward]
traced = []  # a shape for each program that XLA compiles


@jax.jit
def forward(weights, arrays, ids, filled, last):
    """The token after position `last` of ids, and the cache, which held `filled` tokens before."""
    traced.append(ids.shape)
    cache = static_cache(arrays, filled)
    inputs = {"input_ids": torch_view(ids), "past_key_values": cache, "logits_to_keep": torch_view(last[None])}
    logits = torch.func.functional_call(model, torch_view(weights), (), inputs).logits
    token = jnp.argmax(jax_view(logits)[:, 0], axis=-1)
    return token, [(jax_view(layer.keys), jax_view(layer.values)) for layer in cache.layers]
# --8<-- [end:forward]


# --8<-- [start:generate]
def bucket(length, smallest=16):
    return min(ROOM, max(smallest, 1 << (length - 1).bit_length()))


def generate(weights, ids, new, padded=True):
    rows, length = ids.shape
    if length + new > ROOM:  # JAX raises no error for an index beyond the end: the answer would be wrong
        raise ValueError(f"{length} + {new} tokens do not fit into a cache of {ROOM}")
    width = bucket(length) if padded else length
    ids = jnp.pad(ids, ((0, 0), (0, width - length)))  # on the right: no true token sees a later one
    token, arrays = forward(weights, empty_cache(rows), ids, jnp.array(0), jnp.array(length - 1))
    answer = [token]
    for position in range(length, length + new - 1):  # overwrites what the padding left in the cache
        token, arrays = forward(weights, arrays, token[:, None], jnp.array(position), jnp.array(0))
        answer.append(token)
    return np.stack(answer, axis=1)
# --8<-- [end:generate]


def main():
    prompts = [np.arange(5, 5 + length)[None] for length in (5, 9, 12, 20, 31)]
    expected = [
        model.generate(torch.from_numpy(ids), max_new_tokens=8, do_sample=False)[:, ids.shape[1] :].numpy()
        for ids in prompts
    ]
    torchax.enable_globally()
    model.to("jax")
    weights = jax_view(dict(model.named_parameters()) | dict(model.named_buffers()))
    for padded in (False, True):
        traced.clear()
        forward.clear_cache()
        answers = [generate(weights, ids, 8, padded) for ids in prompts]
        same = all((answer == tokens).all() for answer, tokens in zip(answers, expected))
        print(f"padded {padded}: {len(traced)} programs, same tokens as PyTorch: {same}")


if __name__ == "__main__":
    main()
