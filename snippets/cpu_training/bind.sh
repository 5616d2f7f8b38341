# One socket: its cores, its memory, one thread per physical core (here 16)
OMP_NUM_THREADS=16 numactl --cpunodebind=0 --membind=0 python train.py
# Without numactl: the cores only
OMP_NUM_THREADS=16 taskset --cpu-list 0-15 python train.py
