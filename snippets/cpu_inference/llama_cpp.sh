python convert_hf_to_gguf.py path/to/checkpoint --outfile model-f16.gguf --outtype f16
llama-quantize model-f16.gguf model-q4.gguf Q4_K_M
llama-server --model model-q4.gguf --threads 8
llama-bench --model model-q4.gguf --threads 4,8,16 --n-prompt 512 --n-gen 128
