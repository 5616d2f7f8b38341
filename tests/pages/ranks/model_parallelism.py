"""Brings about the errors of docs/training/model-parallelism.md: `two` on two ranks, `four` on four.

What a case prints, or the error that it ends with, comes after its name.
"""

import sys
import warnings

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from peft import LoraConfig, get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainingArguments
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

SMALL = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "use_cache": False}  # fmt: skip
THREE = SMALL | {"num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 66, "head_dim": 22}
SEVEN = SMALL | {"head_dim": 16, "num_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
TWO_DIMENSIONS = SMALL | {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
IDS = torch.arange(64).view(2, 32)


def case(name, run):
    print(f"=== {name}")
    try:
        run()
    except (Exception, SystemExit) as error:
        print(f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    dist.barrier()


def load(folder, kind=LlamaForCausalLM, **sizes):
    return kind.from_pretrained(folder, distributed_config=DistributedConfig(**sizes))


def backward(model, rows=IDS):
    model(input_ids=rows, labels=rows).loss.backward()
    return model


# Two ranks


def save_checkpoints():
    models = {
        "two": LlamaForCausalLM(LlamaConfig(**SMALL)),
        "three": LlamaForCausalLM(LlamaConfig(**THREE)),
        "seven": Qwen3MoeForCausalLM(Qwen3MoeConfig(**SEVEN)),
    }
    for folder, model in models.items():
        if dist.get_rank() == 0:
            model.save_pretrained(folder)
    dist.barrier()


def three_heads_in_torch():
    model = LlamaForCausalLM(LlamaConfig(**THREE))
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, init_device_mesh("cpu", (2,)), plan)
    model(input_ids=IDS)


def optimizer_step(**options):
    model = backward(load("two", tp_size=2))
    torch.optim.AdamW(model.parameters(), **options).step()


def clip():
    torch.nn.utils.clip_grad_norm_(backward(load("two", tp_size=2)).parameters(), 1.0)


def clip_apart():
    whole = backward(LlamaForCausalLM.from_pretrained("two"))
    print(f"norm {torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.5).item():.4f}")
    split = backward(load("two", tp_size=2))
    print(f"norm {Accelerator(cpu=True).clip_grad_norm_(split.parameters(), 0.5).item():.4f}")
    split = backward(load("two", tp_size=2))
    print(f"norm {Trainer._mixed_mesh_grad_norm(None, split, 0.5).item():.4f}")


def trainer_on_a_cpu():
    AcceleratorState._reset_state(reset_partial_state=True)  # of the case before
    arguments = TrainingArguments("out", max_steps=1, use_cpu=True, disable_tqdm=True)
    Trainer(model=load("two", tp_size=2), args=arguments, train_dataset=[{"input_ids": IDS[0], "labels": IDS[0]}] * 4)


def pipeline_of_transformers():
    output = load("two", pp_size=2)(input_ids=IDS, labels=IDS)
    print("loss", output.loss, "gradient", output.logits.requires_grad)


def sequence_parallel_of_transformers():
    model, widths = load("two", tp_size=2, enable_sequence_parallel=True), []
    model.model.layers[0].input_layernorm.register_forward_hook(lambda module, given, out: widths.append(out.size(1)))
    model(input_ids=IDS)
    print("tokens in the norm", *widths)


def split_modules():
    model = load("two", tp_size=2)
    print(sorted({name.split(".")[-2] for name, p in model.named_parameters() if type(p.data).__name__ == "DTensor"}))


def lora(layers, **sizes):
    model = get_peft_model(load("two", **sizes), LoraConfig(target_modules=layers))
    for name, parameter in model.named_parameters():
        if "lora_A" in name and not isinstance(parameter, DTensor):
            parameter.data = torch.linspace(-1, 1, parameter.numel()).view(parameter.shape)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    for _ in range(3):
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.5f}")


def plan_as_an_argument():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LlamaForCausalLM.from_pretrained("two", tp_plan="auto")
    print(*(each.message for each in caught if each.category is FutureWarning))


def two():
    save_checkpoints()
    case("mesh", lambda: init_device_mesh("cpu", (4, 2)))
    columns = ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"]
    case("lora", lambda: lora(columns))
    case("lora by columns", lambda: lora(columns, tp_size=2))
    case("lora by rows", lambda: lora(["down_proj"], tp_size=2))
    case("smaller mesh", lambda: init_device_mesh("cpu", (1,)))
    case("mesh_transformers", lambda: load("two", tp_size=8))
    case("world_size", lambda: DistributedConfig(tp_plan="auto", fsdp_size=3))
    layout = DistributedConfig(tp_size=2)
    case("from_config", lambda: LlamaForCausalLM._from_config(LlamaConfig(**SMALL), distributed_config=layout))
    case("heads", lambda: load("three", tp_size=2)(input_ids=IDS))
    case("heads in torch", three_heads_in_torch)
    case("default adamw", optimizer_step)
    case("fused adamw", lambda: optimizer_step(fused=True))
    case("clip", clip)
    case("clip apart", clip_apart)
    case("trainer_cpu", trainer_on_a_cpu)
    case("pp_size", pipeline_of_transformers)
    case("enable_sequence_parallel", sequence_parallel_of_transformers)
    case("split modules", split_modules)
    case("tp_plan", plan_as_an_argument)
    case("ep_size", lambda: DistributedConfig(ep_size=2))
    case("ep_dense", lambda: load("two", fsdp_size=2, ep_size=2))
    case("experts", lambda: load("seven", Qwen3MoeForCausalLM, fsdp_size=2, ep_size=2))


# Four ranks


def split_and_sharded():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**TWO_DIMENSIONS))
    plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()}
    parallelize_module(model.model.layers[0].mlp, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    return backward(model, IDS.chunk(2)[mesh.get_local_rank("dp")])


def clip_each_mesh_apart():
    torch.manual_seed(0)
    whole = backward(LlamaForCausalLM(LlamaConfig(**TWO_DIMENSIONS)))
    print(f"norm {torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.5).item():.4f}")
    print(f"norm {Accelerator(cpu=True).clip_grad_norm_(split_and_sharded().parameters(), 0.5).item():.4f}")
    print(f"norm {Trainer._mixed_mesh_grad_norm(None, split_and_sharded(), 0.5).item():.4f}")


def four():
    case("clip_meshes", lambda: torch.nn.utils.clip_grad_norm_(split_and_sharded().parameters(), 0.5))
    case("clip each mesh apart", clip_each_mesh_apart)


disable_progress_bar()
dist.init_process_group("gloo")
{"two": two, "four": four}[sys.argv[1]]()
end = dist.barrier(async_op=True)
end.wait()
dist.destroy_process_group()
