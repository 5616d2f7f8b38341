# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own loop, and evaluation
#
# Does a loop written with Accelerate do the same as `Trainer`? What does an evaluation keep in memory? And which
# arguments of version 4 does this version still take? A small Llama answers, on a CPU or a GPU, in seconds.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability")
    needs = ["transformers==5.23.0", "accelerate==1.15.0", "matplotlib", f"performance-and-scalability @ {source}"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needs], check=True)

# %%
import tempfile

import torch
from accelerate import Accelerator
from transformers import (
    AutoModelForCausalLM, LlamaConfig, PrinterCallback, Trainer, TrainingArguments, get_linear_schedule_with_warmup, logging, set_seed,
)

from evidence.claims import claim, start, table

logging.set_verbosity_error()
start("own_loop")

# %% tags=["measures"]
GPU = torch.cuda.is_available()
STEPS, ACCUMULATE, BATCH, LENGTH, VOCABULARY = 8, 4, 4, 64, 1000
config = LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY, use_cache=False,
)
rows = torch.randint(0, VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(0))
data = [  # eight rows again and again, so that there is something to learn; each has another number of labels
    {"input_ids": row, "labels": row.where(torch.arange(LENGTH) >= 7 * number, -100)} for number, row in enumerate(rows)
] * (STEPS * ACCUMULATE * BATCH // len(rows))


def fresh_model():
    set_seed(0)
    return AutoModelForCausalLM.from_config(config)


# %% [markdown]
# ## Trainer and the loop
#
# Eight optimizer steps of four micro-batches each, in fp32, with the same data in the same order. The rows have different numbers
# of labels: a loop that takes the mean of the micro-batches' means, leaves out clipping or the schedule breaks the bound.

# %% tags=["measures"]
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=fresh_model(), train_dataset=data,
        args=TrainingArguments(
            folder, max_steps=STEPS, logging_steps=1, save_strategy="no", use_cpu=not GPU, disable_tqdm=True, learning_rate=5e-3,
            per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATE, train_sampling_strategy="sequential",
        ),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
by_trainer = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

# %% tags=["measures"]
accelerator = Accelerator(cpu=not GPU)
model = fresh_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0, fused=True)
schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=STEPS)
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=BATCH))
by_loop, batches = [], iter(loader)
for _ in range(STEPS):
    micro_batches = [next(batches) for _ in range(ACCUMULATE)]
    tokens = sum((batch["labels"][:, 1:] != -100).sum() for batch in micro_batches)
    step_loss = 0.0
    for batch in micro_batches:
        loss = model(**batch, num_items_in_batch=tokens).loss
        accelerator.backward(loss)
        step_loss += loss.item()
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    by_loop.append(step_loss)
table(
    "losses", "Loss of each optimizer step", {"step": "Step", "trainer": "Trainer, nats", "loop": "Own loop, nats"},
    [{"step": number, "trainer": a, "loop": b} for number, (a, b) in enumerate(zip(by_trainer, by_loop), 1)], kind="measured",
)
claim("loop-difference", "Largest relative difference of the losses of the Accelerate loop from those of Trainer, over 8 steps in fp32",
      max(abs(a - b) / a for a, b in zip(by_trainer, by_loop)), kind="measured", at_most=1e-4 if GPU else 1e-6)
claim("loop-learned", "Loss of the last of these steps, which are all on the same eight rows, against that of the first",
      by_loop[-1] / by_loop[0], "x", kind="measured", at_most=0.8)
start_weights, trainer_weights = dict(fresh_model().named_parameters()), dict(trainer.model.named_parameters())
differ, moved = (max((weight.cpu() - other[name].cpu()).abs().max().item() for name, weight in accelerator.unwrap_model(model).named_parameters())
                 for other in (trainer_weights, start_weights))
claim("loop-weights", "Largest difference of a weight after these steps from the same weight of Trainer's model, against the largest change of a weight by training",
      differ / moved, kind="measured", at_most=1e-2 if GPU else 1e-4)

# %% [markdown]
# ## What an evaluation keeps
#
# `Trainer` collects the logits of every batch for `compute_metrics`, on the GPU, until the evaluation ends. For a
# language model that is one number per token and word of the vocabulary.

# %% tags=["measures"]
def predictions(**options):
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_eval_batch_size=8, use_cpu=not GPU, disable_tqdm=True)
        evaluated = Trainer(model=fresh_model(), args=arguments, compute_metrics=lambda seen: {}, **options)
        evaluated.remove_callback(PrinterCallback)
        return evaluated.predict(data[:32]).predictions


kept = predictions()
reduced = predictions(preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(dim=-1))
claim("kept-logits", f"Bytes of predictions that Trainer keeps per token, vocabulary of {VOCABULARY:,}",
      kept.nbytes / (32 * LENGTH), "bytes", kind="measured", at_least=4 * VOCABULARY, at_most=4 * VOCABULARY)
claim("kept-tokens", "Bytes of predictions that Trainer keeps per token, where preprocess_logits_for_metrics takes the argmax",
      reduced.nbytes / (32 * LENGTH), "bytes", kind="measured", at_least=8, at_most=8)
# %%
claim("logits-of-an-evaluation", "fp32 logits of 1,000 sequences of 1,024 tokens, vocabulary of 128,256",
      1000 * 1024 * 128256 * 4 / 2**30, "GiB", kind="derived", at_least=480, at_most=500)
claim("tokens-of-an-evaluation", "The same as predicted tokens, 8 bytes each", 1000 * 1024 * 8 / 2**20, "MiB", kind="derived", at_least=7, at_most=9)
claim("logits-of-a-batch", "fp32 logits of one evaluation batch of 8 sequences of 1,024 tokens, vocabulary of 128,256",
      8 * 1024 * 128256 * 4 / 2**30, "GiB", kind="derived", at_least=3.8, at_most=4.1)

# %% [markdown]
# A classifier keeps one number per row and class. The evaluation of a user with many classes, by arithmetic:

# %%
ROWS, CLASSES, USER = 469_530, 9_997, "https://github.com/huggingface/transformers/issues/7232"
claim("classifier-logits", f"fp32 logits of {ROWS:,} rows and {CLASSES:,} classes", ROWS * CLASSES * 4 / 2**30, "GiB", kind="derived", source=USER, at_least=17.4, at_most=17.6)
claim("classifier-classes", f"The predicted classes of {ROWS:,} rows, 8 bytes each", ROWS * 8 / 2**20, "MiB", kind="derived", source=USER, at_least=3.5, at_most=3.7)

# %% [markdown]
# ## From version 4 to version 5
#
# The arguments of `TrainingArguments` in transformers 4.41.2 that this version refuses, and what to write instead. Each
# name is looked up below.

# %%
INSTEAD = {
    "evaluation_strategy": "eval_strategy", "no_cuda": "use_cpu", "use_mps_device": None, "group_by_length": "train_sampling_strategy",
    "warmup_ratio": "warmup_steps", "adafactor": "optim", "torchdynamo": "torch_compile_backend", "include_inputs_for_metrics": "include_for_metrics",
    "include_tokens_per_second": "include_num_input_tokens_seen", "half_precision_backend": None, "fp16_backend": None, "fp16_opt_level": None,
    "use_ipex": None, "jit_mode_eval": None, "overwrite_output_dir": None, "logging_dir": None, "save_safetensors": None,
    "per_gpu_train_batch_size": "per_device_train_batch_size", "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "dispatch_batches": "accelerator_config", "split_batches": "accelerator_config", "fsdp_min_num_params": "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap": "fsdp_config", "push_to_hub_model_id": "hub_model_id", "push_to_hub_organization": "hub_model_id",
    "push_to_hub_token": "hub_token", "tpu_num_cores": None, "tpu_metrics_debug": "debug", "past_index": None,
    "use_legacy_prediction_loop": None, "mp_parameters": None, "ray_scope": None,
}
REMARKS = {
    "group_by_length": '="group_by_length"', "warmup_ratio": "=0.1, a float below 1", "adafactor": '="adafactor"', "tpu_metrics_debug": '="tpu_metrics_debug"',
    "use_mps_device": "nothing: the device is found", "half_precision_backend": "nothing: PyTorch's own is the only one",
    "fp16_backend": "nothing: PyTorch's own is the only one", "fp16_opt_level": "nothing: apex is gone", "use_ipex": "nothing: PyTorch itself",
    "jit_mode_eval": "nothing: torch_compile", "overwrite_output_dir": "nothing", "logging_dir": "TENSORBOARD_LOGGING_DIR in the environment",
    "save_safetensors": "nothing: always", "include_inputs_for_metrics": '=["inputs"]',
}


def accepted(name):
    return name in TrainingArguments.__dataclass_fields__ and TrainingArguments.__dataclass_fields__[name].init


still = [name for name in INSTEAD if accepted(name)]
wrong = [new for new in INSTEAD.values() if new and not accepted(new)]
assert not still and not wrong, (still, wrong)
table(
    "arguments", "TrainingArguments of transformers 4.41.2 that version 5.23.0 refuses", {"old": "Version 4", "new": "Now"},
    [{"old": old, "new": (new or "") + REMARKS.get(old, "" if new else "nothing")} for old, new in INSTEAD.items()], kind="derived",
)
claim("arguments-gone", "Arguments of TrainingArguments in transformers 4.41.2 that transformers 5.23.0 refuses",
      len(INSTEAD), "names", kind="derived", at_least=30, at_most=36)
