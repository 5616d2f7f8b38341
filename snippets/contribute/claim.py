"""A notebook's claim, in the smallest form that runs."""
from transformers import AutoModelForCausalLM, LlamaConfig

from dryrun.tracing import training_step
from evidence.claims import claim, start

start("example")
config = LlamaConfig(
    hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000,
)

# --8<-- [start:claim]
plain = training_step(AutoModelForCausalLM, config, batch_size=8, sequence_length=512)
checkpointed = training_step(
    AutoModelForCausalLM, config, batch_size=8, sequence_length=512, activation_checkpointing=True
)
claim(
    "checkpointing-memory", "Activation checkpointing cuts the peak memory of a step",
    plain.peak / checkpointed.peak, unit="x", kind="traced", at_least=1.5, at_most=10,
)
# --8<-- [end:claim]
