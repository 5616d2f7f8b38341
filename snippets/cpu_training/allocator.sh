# Debian, Ubuntu: apt-get install libtcmalloc-minimal4 libjemalloc2
LD_PRELOAD=libtcmalloc_minimal.so.4 python train.py
LD_PRELOAD=libjemalloc.so.2 python train.py
