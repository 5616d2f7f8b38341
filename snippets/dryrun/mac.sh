dryrun infer llama3-70b --gpu m4-max --memory 64 --weights q4_k_m
