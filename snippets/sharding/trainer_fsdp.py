"""Trainer with FSDP2, on GPUs. Run it as: torchrun --nproc_per_node 2 trainer_fsdp.py"""
import os

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
# --8<-- [start:arguments]
arguments = TrainingArguments(
    "out", max_steps=4, save_strategy="no", per_device_train_batch_size=4, report_to="none", disable_tqdm=True,
    bf16=gpu, use_cpu=not gpu,
    fsdp=True,
    fsdp_config={
        "version": 2,
        "reshard_after_forward": True,  # False: gathers once, and every rank holds all weights until the backward pass
        "activation_checkpointing": True,  # in place of the argument of that name
        "cpu_ram_efficient_loading": True,  # all ranks get rank 0's weights; in 5.23 each still reads the file
        "state_dict_type": "SHARDED_STATE_DICT",
        "cpu_offload": False,
    },
)
# --8<-- [end:arguments]
# --8<-- [start:sums]
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
arguments.fsdp_plugin_args["mixed_precision_policy"] = policy  # there is no key for it in fsdp_config
# --8<-- [end:sums]

config = LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4, vocab_size=1000)
model = AutoModelForCausalLM.from_config(config)
ids = torch.randint(0, config.vocab_size, (64, 64))
data = [{"input_ids": row, "labels": row} for row in ids]
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()

# --8<-- [start:check]
wrapped = type(trainer.model_wrapped).__name__
sharded = any(isinstance(parameter, DTensor) for parameter in trainer.model.parameters())
print(f"rank {arguments.process_index}: {wrapped}, sharded: {sharded}", flush=True)
# --8<-- [end:check]

# --8<-- [start:save]
if trainer.is_fsdp_enabled:  # not on a CPU
    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
trainer.save_model("trained")  # on every rank; rank 0 writes
# --8<-- [end:save]
if torch.distributed.is_initialized():
    end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
    end.wait()
    torch.distributed.destroy_process_group()
