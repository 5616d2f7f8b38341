# vLLM TorchTPU: PyTorch models, Python 3.12, Trillium or Ironwood
pip install vllm-torchtpu
vllm serve Qwen/Qwen3-8B --max-model-len 4096 --tensor-parallel-size 4

# vLLM on JAX, in another environment: v5e, v6e and v7x
pip install vllm-tpu
vllm serve Qwen/Qwen3-8B --max-model-len 4096 --tensor-parallel-size 4
