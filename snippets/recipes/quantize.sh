pip install nncf==3.4.0
python quantize_encoder.py texts.txt
python serve_encoder.py --folder encoder-int8 --port 8080
