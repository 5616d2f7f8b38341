pip install torch==2.13.0 transformers==5.23.0 openvino==2026.4.1
