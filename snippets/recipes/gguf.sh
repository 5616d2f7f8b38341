git clone --depth 1 https://github.com/ggml-org/llama.cpp
python -m venv gguf && gguf/bin/pip install transformers==5.23.0 torch sentencepiece  # llama.cpp pins transformers 4
gguf/bin/python llama.cpp/convert_hf_to_gguf.py merged --outfile merged.gguf --outtype q8_0
llama-server --model merged.gguf  # with the chat template of the file
