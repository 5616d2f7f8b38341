"""Ulysses by Trainer, Accelerate and DeepSpeed. Run: torchrun --nproc-per-node 2 ulysses_trainer.py"""

import os

import deepspeed
import torch
from accelerate.utils import DeepSpeedSequenceParallelConfig, ParallelismConfig
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

size = int(os.environ["WORLD_SIZE"])
gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
deepspeed.init_distributed("nccl" if gpu else "gloo")  # on a CPU nobody else does it
config = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8,
    num_attention_heads=4, num_key_value_heads=2, use_cache=False,
)
torch.manual_seed(0)
model = LlamaForCausalLM(config)
ids = torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(1)).tolist()
data = 16 * [{"input_ids": row, "labels": row, "position_ids": list(range(32))} for row in ids]
# --8<-- [start:arguments]
sequence = DeepSpeedSequenceParallelConfig(sp_attn_implementation="sdpa")  # on GPUs better "flash_attention_2"
arguments = TrainingArguments(
    "out", max_steps=4, per_device_train_batch_size=8, train_sampling_strategy="sequential", use_cpu=not gpu, bf16=gpu,
    optim="sgd", learning_rate=0.1, lr_scheduler_type="constant", max_grad_norm=0.0, logging_steps=1, save_strategy="no",
    parallelism_config=ParallelismConfig(sp_backend="deepspeed", sp_size=size, sp_handler=sequence),
    deepspeed={
        "zero_optimization": {"stage": 3}, "zero_allow_untested_optimizer": True, "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",  # else DeepSpeed clips at 1
        "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
    },
)
# --8<-- [end:arguments]
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
if trainer.is_world_process_zero():
    for entry in trainer.state.log_history[:4]:
        print(f"loss {float(entry['loss']):.5f}")
end = torch.distributed.barrier(async_op=True)  # named, so that gloo does not free it while Python ends
end.wait()  # nobody leaves while another still speaks to it
torch.distributed.destroy_process_group()
