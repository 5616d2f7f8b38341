#!/usr/bin/env bash
# An environment for the old job alone: transformers 5 has no TensorFlow classes. On a GPU take "tensorflow[and-cuda]==2.21.0".
python -m venv last-tensorflow
last-tensorflow/bin/pip install "transformers==4.57.6" "tensorflow-cpu==2.21.0" torch
# Without what it asks for: tf-keras would bring the package `tensorflow` beside `tensorflow-cpu`.
last-tensorflow/bin/pip install --no-deps "tf-keras==2.21.0"
last-tensorflow/bin/python to_pytorch.py
