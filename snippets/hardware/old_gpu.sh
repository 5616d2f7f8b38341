#!/usr/bin/env bash
pip uninstall --yes torch
pip install torch --index-url https://download.pytorch.org/whl/cu126
python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())" # (7, 0) needs sm_70
