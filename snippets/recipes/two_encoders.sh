# 16 cores as two servers; change the numbers to your cores.
taskset --cpu-list 0-7 python serve_encoder.py --port 8081 --threads 8 &
taskset --cpu-list 8-15 python serve_encoder.py --port 8082 --threads 8 &
wait
