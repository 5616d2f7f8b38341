export USE_TORCH_XLA=0    # before transformers and accelerate are imported
python -c "from transformers.utils import is_torch_xla_available as found; print(found())"
