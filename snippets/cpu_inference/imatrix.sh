llama-imatrix -m model-f16.gguf -f texts.txt -o imatrix.gguf
llama-quantize --imatrix imatrix.gguf model-f16.gguf model-q3.gguf Q3_K_M
