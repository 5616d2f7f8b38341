# One instance for each group of cores; each takes as many threads as it has cores. Change the numbers to yours.
taskset --cpu-list 0-7 python serve_one.py --port 8001 &
taskset --cpu-list 8-15 python serve_one.py --port 8002 &
wait
