"""What to type for a strategy of a plan: the configuration of `accelerate launch`, or the guide that has the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cost.roofline import BEFORE_AMPERE, processor
from ..cost.setting import FP32_ADAPTERS
from ..tables.strategies import Strategy, strategy

if TYPE_CHECKING:
    from ..answer.planner import Option

GUIDE = "Model parallelism"  # the page of what `accelerate` does not set up from a file alone


def file_of(option: Option) -> str | None:
    """The text of accelerate.yaml, or None where a strategy needs code of its own: tensor, pipeline, sequence and expert parallelism."""
    setting = option.setting
    if setting.tensor > 1 or setting.pipeline > 1 or setting.sequence > 1 or setting.experts > 1:
        return None
    chosen = strategy(setting.strategy)
    lines = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _type(chosen),
        "num_machines": setting.nodes,
        "num_processes": setting.gpus,
        # Under FSDP2 it makes fp32 copies of all trained weights: it is right where the plan counts them.
        "mixed_precision": _half(option) if chosen.deepspeed or _mixed(option) else '"no"',
    }
    if setting.nodes > 1:
        lines |= {
            "machine_rank": "0 # change: 1, 2, ... on the other nodes",
            "main_process_ip": "HOST # change: the first node",
            "main_process_port": 29500,
        }
    text = "".join(f"{name}: {value}\n" for name, value in lines.items())
    if setting.views:
        text += "# and in the program: Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])\n"
    return text + "".join(_section(name, values) for name, values in _sections(option, chosen).items())


def command(option: Option) -> str:
    """The line to type."""
    if file_of(option) is None:
        return f"it needs a program: the page {GUIDE}"
    return "accelerate launch --config_file accelerate.yaml train.py"


def _mixed(option: Option) -> bool:
    return option.setting.state in ("fp32", FP32_ADAPTERS) or bool(option.workload.autocast)


def _half(option: Option) -> str:
    return "fp16" if processor(option.setting.gpu).architecture in BEFORE_AMPERE else "bf16"


def _type(chosen: Strategy) -> str:
    if chosen.deepspeed:
        return "DEEPSPEED"
    return "FSDP" if chosen.gathers else "MULTI_GPU" if chosen.sends else '"NO"'


def _sections(option: Option, chosen: Strategy) -> dict[str, dict[str, object]]:
    setting = option.setting
    if chosen.deepspeed:
        return {"deepspeed_config": {"zero_stage": setting.strategy[-1], "gradient_accumulation_steps": setting.accumulation}}
    if not chosen.gathers:
        return {}
    sharding = {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": "true",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": "true",
        "fsdp_activation_checkpointing": str(bool(option.workload.checkpointing)).lower(),
        "fsdp_offload_params": str(setting.offload).lower(),
    }
    if not chosen.in_node:
        return {"fsdp_config": sharding}
    replicas: dict[str, object] = {"parallelism_config_dp_replicate_size": setting.nodes, "parallelism_config_dp_shard_size": setting.gpus_per_node}
    return {"fsdp_config": sharding, "parallelism_config": replicas}


def _section(name: str, values: dict[str, object]) -> str:
    return f"{name}:\n" + "".join(f"  {key}: {value}\n" for key, value in values.items())
