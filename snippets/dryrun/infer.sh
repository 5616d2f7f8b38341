dryrun infer llama3-8b --gpu rtx-4090 --weights int4-128 --prompt 3000 --new 1000 --batch 8
