"""Keeps compiled programs on disk, so that a restart does not compile again."""
import sys

import jax
import jax.numpy as jnp

# --8<-- [start:cache]
jax.config.update("jax_compilation_cache_dir", "compiled")  # off by default; several hosts: a folder that all can read
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # default 1: what compiles faster is not kept
# --8<-- [end:cache]

found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event.rpartition("/")[2]))


@jax.jit
def step(weights, inputs):
    return jnp.tanh(inputs @ weights).sum()


step(jnp.ones((64, 64)), jnp.ones((int(sys.argv[1]), 64)))
print("from disk:", found.count("cache_hits"), "compiled:", found.count("cache_misses"))
