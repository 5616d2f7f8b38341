python -c "import ctypes; print(ctypes.CDLL(None).mallopt(-3, 1 << 30))"  # 1: this glibc takes the next line; 0: it does not
# glibc itself, told to keep up to 1 GiB of what is freed: nothing to install
MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824 python train.py
# Debian, Ubuntu: apt-get install libtcmalloc-minimal4 libjemalloc2
LD_PRELOAD=libtcmalloc_minimal.so.4 python train.py
LD_PRELOAD=libjemalloc.so.2 python train.py
