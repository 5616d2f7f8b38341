python3 -m pip install '.[examples]' peft==0.21.2 bitsandbytes==0.50.2 liger-kernel==0.8.5
PYTHON=python3 make gpu
