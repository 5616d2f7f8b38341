RECORDS=~/Downloads/one_gpu.nvidia-l4.json make add
COMMIT=origin/main make summary
