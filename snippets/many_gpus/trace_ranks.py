"""Memory and communication of rank 0 of as many GPUs as you like, for your model. Needs no GPU.

python trace_ranks.py
"""

# --8<-- [start:trace]
from transformers import AutoModelForCausalLM, LlamaConfig

from dryrun.tracing.ranks import rank_step

# Or AutoConfig.from_pretrained("your/model"): the weights are not needed.
config = LlamaConfig(
    hidden_size=1024, intermediate_size=4096, num_hidden_layers=4,
    num_attention_heads=16, num_key_value_heads=4,
)
STRATEGIES = {
    "ddp": {},
    "fsdp2": {},
    "hsdp": {"shard": 8},
    "tp_fsdp2": {"tensor": 4, "sequence_parallel": True},
}
for strategy, options in STRATEGIES.items():
    step = rank_step(
        AutoModelForCausalLM, config, strategy, ranks=64, batch_size=1,
        sequence_length=512, activation_checkpointing=True, **options,
    )
    print(f"{strategy}: peak {step.peak_gib:.2f} GiB, sends {step.sent() / 1e9:.2f} GB")
    for category, size in step.peak_by_category.items():
        print(f"  {category}: {size / 2**30:.2f} GiB")
    for one in step.collectives:
        size = f"{one.payload / 1e9:.2f} GB"
        print(f"  {one.count} x {one.kind} over {one.group} ranks: {size}")
# --8<-- [end:trace]
