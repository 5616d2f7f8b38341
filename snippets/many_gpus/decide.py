"""Which strategy for which model on which GPUs. Needs no GPU.

python decide.py
"""

from transformers import LlamaConfig

from dryrun import Cluster, Job, Model, plan


def show(title, options):
    print(title)
    for option in options[:4]:
        print(" ", option)


# --8<-- [start:seven]
step = {"length": 4096, "precision": "mixed", "checkpointing": True}
options = plan(Job("llama2-7b", **step), Cluster("A100 40GB", gpus=8))
# --8<-- [end:seven]
show("7B on 8 x A100 40GB", options)

# --8<-- [start:seventy]
options = plan(Job("llama3-70b", **step), Cluster("RTX 4090", gpus=4, host_memory_gb=512))
# --8<-- [end:seventy]
show("70B on 4 x RTX 4090", options)

# --8<-- [start:slow]
nodes = Cluster("A100 40GB", gpus=16, gpus_per_node=8, network="100 GbE", adapters=1)
options = plan(Job("qwen2.5-72b", **step), nodes)
# --8<-- [end:slow]
show("72B on 2 nodes of 8 x A100 40GB, one 100 GbE adapter each", options)

# --8<-- [start:two]
options = plan(
    Job("llama3.2-1b", length=2048, accumulation=4, precision="mixed", checkpointing=True),
    Cluster("RTX 4090", gpus=2),
)
# --8<-- [end:two]
show("1B on 2 x RTX 4090", options)

# --8<-- [start:own]
# Or AutoConfig.from_pretrained("your/model"): the weights are not needed.
config = LlamaConfig(
    hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
    num_attention_heads=24, num_key_value_heads=8, vocab_size=128256, max_position_embeddings=4096,
)
model = Model("mine", config.to_json_string(use_diff=False))  # your model, or the path of its config.json
nodes = Cluster(
    "RTX A6000", gpus=16, gpus_per_node=4, network="25 GbE", adapters=2,  # your GPUs and nodes
    link=20.0,  # GB/s, if you measured it
    host_memory_gb=256,  # of each node, for offload
)
options = plan(Job(model, length=4096, batch=2, accumulation=4, precision="mixed", checkpointing=True), nodes)
# --8<-- [end:own]
show("Your own", options)
