"""Which strategy for which model on which GPUs. Needs no GPU and no torch.

python decide.py
"""

from dryrun.plan import gpu, model, plan


def show(title, options):
    print(title)
    for option in options[:4]:
        print(" ", option)


# --8<-- [start:seven]
options = plan(**model("llama-7b"), **gpu("A100 40GB"), gpus=8)
# --8<-- [end:seven]
show("7B on 8 x A100 40GB", options)

# --8<-- [start:seventy]
options = plan(**model("llama-70b"), **gpu("RTX 4090 24GB"), gpus=4)
# --8<-- [end:seventy]
show("70B on 4 x RTX 4090", options)

# --8<-- [start:slow]
options = plan(
    **model("qwen-72b"), **gpu("A100 40GB"),
    gpus=16, nodes=2, network="100 GbE", adapters=1,
)
# --8<-- [end:slow]
show("72B on 2 nodes of 8 x A100 40GB, one 100 GbE adapter each", options)

# --8<-- [start:two]
options = plan(
    **model("llama-1b"), **gpu("RTX 4090 24GB"),
    gpus=2, tokens=2048, micro_batches=4,
)
# --8<-- [end:two]
show("1B on 2 x RTX 4090", options)

# --8<-- [start:own]
options = plan(
    parameters=3.2e9, layers=28, hidden=3072, heads=24, kv_heads=8,  # your model
    vocabulary=128256, tied=True,
    memory_gb=48, tflops=362, link="PCIe 4 x16",  # your GPUs
    gpus=16, nodes=4, network="25 GbE", adapters=2,  # your nodes
    tokens=8192, micro_batches=4, activations_gb=6, precision="bf16",  # your step
)
# --8<-- [end:own]
show("Your own", options)
