pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
pip install transformers==5.23.0 "jax[tpu]==0.10.2" torchax==0.0.14.dev20261026 flax optax  # without a TPU: jax==0.10.2
