"""Which strategy for which model on which GPUs. Needs no GPU.

python decide.py
"""

from transformers import LlamaConfig

from dryrun.answer.planner import plan


def show(title, options):
    print(title)
    for option in options[:4]:
        print(" ", option)


# --8<-- [start:seven]
options = plan("llama2-7b", "A100 40GB", 8, length=4096)
# --8<-- [end:seven]
show("7B on 8 x A100 40GB", options)

# --8<-- [start:seventy]
options = plan("llama3-70b", "RTX 4090", 4, length=4096, host_memory=512)
# --8<-- [end:seventy]
show("70B on 4 x RTX 4090", options)

# --8<-- [start:slow]
options = plan(
    "qwen2.5-72b", "A100 40GB", 16, length=4096,
    nodes=2, network="100 GbE", adapters=1,
)
# --8<-- [end:slow]
show("72B on 2 nodes of 8 x A100 40GB, one 100 GbE adapter each", options)

# --8<-- [start:two]
options = plan("llama3.2-1b", "RTX 4090", 2, length=2048, accumulation=4)
# --8<-- [end:two]
show("1B on 2 x RTX 4090", options)

# --8<-- [start:own]
# Or AutoConfig.from_pretrained("your/model"): the weights are not needed.
config = LlamaConfig(
    hidden_size=3072, intermediate_size=8192, num_hidden_layers=28,
    num_attention_heads=24, num_key_value_heads=8, vocab_size=128256,
)
options = plan(
    config.to_json_string(use_diff=False), "RTX A6000", 16,  # your model, your GPUs
    nodes=4, network="25 GbE", adapters=2,  # your nodes
    link=20.0,  # GB/s, if you measured it
    length=4096, batch=2, accumulation=4, precision="mixed",  # your step
    host_memory=256,  # GB of each node, for offload
)
# --8<-- [end:own]
show("Your own", options)
