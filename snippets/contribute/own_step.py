import json

from dryrun import Cluster, Job, compare

job = Job("qwen3-4b", method="qlora", checkpointing=True, batch=8, accumulation=2, length=110)
compared = compare(job, Cluster("t4"), seconds=4.2, gib=6.4)  # yours: of one update in the middle, and as nvidia-smi says
print(compared)
print(json.dumps(compared.row, indent=1))
