"""Text generation compiled by XLA, with transformers 4.57: one compilation for each shape of the prompt."""
import tensorflow as tf
from transformers import GPT2Config, TFGPT2LMHeadModel

tf.keras.utils.set_random_seed(0)
# Random weights, so that nothing is downloaded. Yours: TFGPT2LMHeadModel.from_pretrained("openai-community/gpt2")
config = GPT2Config(n_embd=64, n_layer=2, n_head=2, n_positions=64, vocab_size=500, initializer_range=0.3,
                    bos_token_id=None, eos_token_id=None, pad_token_id=0)  # fmt: skip
model = TFGPT2LMHeadModel(config)
# --8<-- [start:compile]
generate = tf.function(model.generate, jit_compile=True)


def answer(prompt, multiple=16):
    """The new tokens. Prompts get padding on the left, up to a multiple: so few shapes reach the compiler."""
    padding = [[0, 0], [-prompt.shape[1] % multiple, 0]]
    ids, mask = tf.pad(prompt, padding), tf.pad(tf.ones_like(prompt), padding)
    return generate(input_ids=ids, attention_mask=mask, max_new_tokens=8, do_sample=False)[:, ids.shape[1] :]
# --8<-- [end:compile]


for length in (16, 13, 10, 17):
    prompt = tf.random.uniform((2, length), 1, config.vocab_size, tf.int32, seed=length)
    eager = model.generate(prompt, attention_mask=tf.ones_like(prompt), max_new_tokens=8, do_sample=False)[:, length:]
    same = bool(tf.reduce_all(answer(prompt) == eager))
    print(f"prompt of {length}: same tokens {same}, compiled {generate.experimental_get_tracing_count()}")
