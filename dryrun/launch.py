"""What to type for a strategy of a plan: the configuration of `accelerate launch`, or the guide that has the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .planner import Option
    from .setting import Setting

GUIDE = "docs/training/model-parallelism.md"  # of what `accelerate` does not set up from a file alone


def file_of(option: Option) -> str | None:
    """The text of accelerate.yaml, or None where a strategy needs code of its own: tensor, pipeline, sequence and expert parallelism."""
    setting = option.setting
    if setting.tensor > 1 or setting.pipeline > 1 or setting.sequence > 1 or setting.experts > 1:
        return None
    lines = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _type(setting),
        "num_machines": setting.nodes,
        "num_processes": setting.gpus,
        # Under FSDP2 bf16 makes fp32 copies of all weights: it is right where the plan counts them.
        "mixed_precision": "bf16" if _mixed(option) or setting.strategy in ("zero1", "zero2") else '"no"',
        **({"machine_rank": "0 # change: 1, 2, ... on the other nodes", "main_process_ip": "HOST # change: the first node",
            "main_process_port": 29500} if setting.nodes > 1 else {}),
    }  # fmt: skip
    text = "".join(f"{name}: {value}\n" for name, value in lines.items())
    return text + "".join(_section(name, values) for name, values in _sections(option).items())


def command(option: Option) -> str:
    """The line to type."""
    if file_of(option) is None:
        return f"its program: {GUIDE}"
    return "accelerate launch --config_file accelerate.yaml train.py"


def _mixed(option: Option) -> bool:
    return option.setting.state == "fp32" or bool(option.workload.autocast)


def _type(setting: Setting) -> str:
    if not setting.strategy:
        return '"NO"'
    if setting.strategy in ("zero1", "zero2"):
        return "DEEPSPEED"
    return "MULTI_GPU" if setting.strategy == "ddp" else "FSDP"


def _sections(option: Option) -> dict[str, dict[str, object]]:
    setting = option.setting
    if setting.strategy in ("zero1", "zero2"):
        return {"deepspeed_config": {"zero_stage": setting.strategy[-1], "gradient_accumulation_steps": setting.accumulation}}
    if setting.strategy not in ("fsdp2", "hsdp"):
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
    if setting.strategy == "fsdp2":
        return {"fsdp_config": sharding}
    replicas: dict[str, object] = {"parallelism_config_dp_replicate_size": setting.nodes, "parallelism_config_dp_shard_size": setting.gpus_per_node}
    return {"fsdp_config": sharding, "parallelism_config": replicas}


def _section(name: str, values: dict[str, object]) -> str:
    return f"{name}:\n" + "".join(f"  {key}: {value}\n" for key, value in values.items())
