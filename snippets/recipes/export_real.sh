python export_encoder.py sentence-transformers/all-MiniLM-L6-v2
