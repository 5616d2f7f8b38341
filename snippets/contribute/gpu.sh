# Where there is a network, for the Python of the other machine:
python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_24_x86_64 -d wheels \
    transformers==5.23.0 accelerate==1.15.0 peft==0.21.2 bitsandbytes==0.50.2 liger-kernel==0.8.5 numpy
# On the machine with the GPU, which has torch:
python3 -m pip install --no-index --no-deps wheels/*.whl
PYTHON=python3 make gpu
