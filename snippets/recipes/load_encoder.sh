python load_encoder.py http://127.0.0.1:8080/ --users 8
