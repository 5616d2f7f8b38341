pip install torch==2.13.0 transformers==5.23.0 accelerate==1.15.0 trl==1.16.0 peft==0.21.2 bitsandbytes==0.50.2
