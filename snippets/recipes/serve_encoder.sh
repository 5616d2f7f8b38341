python serve_encoder.py --port 8080
