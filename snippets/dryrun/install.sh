pip install torch --index-url https://download.pytorch.org/whl/cpu # without a GPU
pip install "gpu-dryrun[trace] @ git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0#subdirectory=dryrun"
