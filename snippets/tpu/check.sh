python check_tpu.py
