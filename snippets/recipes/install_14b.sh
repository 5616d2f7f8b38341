pip install torch==2.13.0 transformers==5.23.0 accelerate==1.15.0
