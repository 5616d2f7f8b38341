# 16 chips are two hosts. The same program starts on both at once:
gcloud compute tpus tpu-vm scp --recurse . tpu16:job --worker=all --zone=us-west4-a
gcloud compute tpus tpu-vm ssh tpu16 --worker=all --zone=us-west4-a --command="cd job && bash install.sh && python train.py fsdp --hosts"
