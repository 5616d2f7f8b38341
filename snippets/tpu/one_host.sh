# A slice of 8 v5e chips is one machine:
gcloud compute tpus tpu-vm create tpu8 --zone=us-west4-a --accelerator-type=v5litepod-8 --version=v2-alpha-tpuv5-lite
gcloud compute tpus tpu-vm scp --recurse . tpu8:job --zone=us-west4-a
gcloud compute tpus tpu-vm ssh tpu8 --zone=us-west4-a --command="cd job && bash on_vm.sh python train.py fsdp"
gcloud compute tpus tpu-vm delete tpu8 --zone=us-west4-a   # it is billed until you do
