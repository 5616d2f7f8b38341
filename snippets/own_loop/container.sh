# PyTorch's own image: torch, CUDA and cuDNN that fit each other. The rest comes by pip, into the container.
docker run --rm --gpus all --ipc=host -v "$PWD":/workspace -w /workspace pytorch/pytorch:latest \
  bash -c 'pip install "transformers==5.23.0" "accelerate==1.15.0" && python train.py'
