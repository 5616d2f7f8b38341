# Which cores and how much memory each node has; one instance per node, with its memory there
numactl --hardware
numactl --cpunodebind=0 --membind=0 python serve_one.py --port 8001 &
numactl --cpunodebind=1 --membind=1 python serve_one.py --port 8002 &
wait
