JAX_LOG_COMPILES=1 python shapes.py               # a line for each compilation, with its shapes
JAX_EXPLAIN_CACHE_MISSES=1 python shapes.py       # and why: which argument is new
