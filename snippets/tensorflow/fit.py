"""Keras fit of a transformers model, compiled by XLA: on a TPU where one answers, else on this machine."""
import tensorflow as tf
from transformers import BertConfig, TFBertForSequenceClassification


# --8<-- [start:strategy]
def strategy():
    """One replica on each TPU core; without a TPU the default strategy, which uses this machine's GPU or CPU."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(tpu="local")
    except (ValueError, tf.errors.OpError) as error:
        print(f"no TPU ({type(error).__name__}), so the default strategy")
        return tf.distribute.get_strategy()
    return tf.distribute.TPUStrategy(resolver)
# --8<-- [end:strategy]


def losses(where, jit_compile):
    tf.keras.utils.set_random_seed(0)
    # --8<-- [start:fit]
    with where.scope():  # weights and optimizer are made on the replicas
        model = TFBertForSequenceClassification(config)
        model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), jit_compile=jit_compile)  # the loss is the model's
    rows = tf.data.Dataset.from_tensor_slices(({"input_ids": ids}, labels))
    # A last batch of another size would be another shape, and another compilation.
    history = model.fit(rows.batch(32, drop_remainder=True), epochs=3, verbose=0)
    # --8<-- [end:fit]
    return history.history["loss"]


# Random weights and rows, so that nothing is downloaded. Yours: `from_pretrained("google-bert/bert-base-uncased")`
config = BertConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=500,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
ids = tf.random.uniform((256, 16), 5, config.vocab_size, tf.int32, seed=1)
labels = tf.cast(ids[:, 1] > config.vocab_size // 2, tf.int32)
where = strategy()
print("replicas", where.num_replicas_in_sync)
compiled, plain = losses(where, True), losses(where, False)
print("loss compiled", [round(loss, 3) for loss in compiled])
print("loss plain   ", [round(loss, 3) for loss in plain])
