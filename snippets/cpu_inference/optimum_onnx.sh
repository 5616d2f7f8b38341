#!/usr/bin/env bash
# An environment of its own: it asks for an older transformers. The other package: "optimum-intel[openvino]==2.2.0"
python -m venv optimum-onnx
optimum-onnx/bin/pip install torch "optimum-onnx[onnxruntime]==0.1.0"
optimum-onnx/bin/python optimum_onnx.py
