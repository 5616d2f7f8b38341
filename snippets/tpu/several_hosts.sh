# 16 chips are four machines of four chips. The same program starts on all of them at once:
gcloud compute tpus tpu-vm create tpu16 --zone=us-west4-a --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite
gcloud compute tpus tpu-vm scp --recurse . tpu16:job --worker=all --zone=us-west4-a
gcloud compute tpus tpu-vm ssh tpu16 --worker=all --zone=us-west4-a --command="cd job && bash on_vm.sh python train.py fsdp --hosts"
gcloud compute tpus tpu-vm delete tpu16 --zone=us-west4-a
