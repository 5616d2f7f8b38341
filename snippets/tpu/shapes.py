"""When does XLA compile? Each new shape is another program."""
import jax
import jax.numpy as jnp
import numpy as np

LENGTHS = [30, 41, 52, 63, 74, 85, 96, 107, 118, 129]


# --8<-- [start:compiles]
def compilations(lengths):
    traced = []

    @jax.jit
    def step(ids):
        traced.append(ids.shape)  # Python runs only while JAX traces: once for each shape
        return jnp.sum(ids * 2)

    for length in lengths:
        step(np.ones((8, length), np.int32))
    return len(traced)
# --8<-- [end:compiles]


# --8<-- [start:buckets]
def bucket(length, smallest=32):
    """The next power of two: a dozen programs cover lengths up to 65,536."""
    return max(smallest, 1 << (length - 1).bit_length())


def pad(ids, labels):
    width = bucket(ids.shape[1]) - ids.shape[1]
    no_loss = np.full((len(labels), width), -100)
    return np.pad(ids, ((0, 0), (0, width))), np.concatenate([labels, no_loss], axis=1)
# --8<-- [end:buckets]


if __name__ == "__main__":
    print("as they come:", compilations(LENGTHS))
    print("in buckets:", compilations([bucket(length) for length in LENGTHS]))
    print("a smaller last batch:", pad(np.ones((3, 50), int), np.ones((3, 50), int))[1].shape)
