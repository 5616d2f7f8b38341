# Which bf16 instructions, and how many sockets, cores and threads? (Linux)
lscpu | grep -o -w -E 'amx_bf16|avx512_bf16|bf16' | sort -u | grep . || echo "no bf16 instructions: train in fp32"
lscpu | grep -E 'Model name|Socket|Core|Thread|NUMA node'
