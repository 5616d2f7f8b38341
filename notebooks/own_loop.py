# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   runs_on: gpu
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
# **Does a loop written with Accelerate do the same as `Trainer`, and what does an
# evaluation keep in memory?**
#
# `Trainer` hides the loop. A loop of your own shows every step, and you may change each
# of them: another loss, another schedule, two models at once. The price is that you now
# do what `Trainer` did for you, and that a line you forget does not raise an error.
#
# *What to expect.* If the loop counts tokens, clips and schedules as `Trainer` does,
# losses and weights should agree to rounding. If it leaves one of these out, they should
# not, and no error says so.
#
# *How it is measured.* A small Llama trains on eight rows, twice: by `Trainer` and by the
# loop, with the same data in the same order. This is a test of behavior, and no model of
# real size is needed for it. What an evaluation keeps is counted for the small model, and
# by arithmetic for a real vocabulary.

# %%
# Installs what this notebook needs where it is not there yet (Colab, an empty folder). Colab's torch stays as it is.
import importlib.util
import os
import subprocess
import sys

PINS = {"transformers": "5.23.0", "accelerate": "1.15.0"}
if importlib.util.find_spec("evidence") is None:
    source = os.environ.get("EVIDENCE_SOURCE", "git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0")
    source = os.path.abspath(source) if os.path.exists(source) else source
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", source], capture_output=True, text=True)
    if done.returncode:
        fix = "set EVIDENCE_SOURCE to the folder of a copy of the repository, and run this cell again"
        raise RuntimeError(f"{done.stderr}Nothing could be installed from {source}. Fix: {fix}")

from evidence.session import prepare

prepare(PINS)

# %%
import tempfile

import matplotlib.pyplot as plt
import torch
from accelerate import Accelerator
from transformers import (
    AutoModelForCausalLM, LlamaConfig, PrinterCallback, Trainer, TrainingArguments,
    get_linear_schedule_with_warmup, logging, set_seed,
)

from evidence.claims import claim, start, table
from evidence.plots import bars, set_up

logging.set_verbosity_error()
os.chdir(tempfile.mkdtemp())  # what Trainer writes goes into a temporary folder
set_up("own_loop")
start("own_loop")

# %% [markdown]
# ## Trainer and the loop
#
# Eight optimizer steps of four micro-batches each, in fp32. The rows have different
# numbers of labels on purpose: a loop that averages the means of its micro-batches gets
# another loss. All steps use the same eight rows, so there is something to learn, and the
# loss must fall.

# %% tags=["measures"]
GPU = torch.cuda.is_available()
STEPS, ACCUMULATE, BATCH, LENGTH, VOCABULARY = 8, 4, 4, 64, 1000
config = LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    use_cache=False,
)
rows = torch.randint(0, VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(0))
data = [
    {"input_ids": row, "labels": row.where(torch.arange(LENGTH) >= 7 * number, -100)} for number, row in enumerate(rows)
] * (STEPS * ACCUMULATE * BATCH // len(rows))


def fresh_model():
    set_seed(0)
    return AutoModelForCausalLM.from_config(config)


# %% [markdown]
# First `Trainer`, with its defaults: AdamW without weight decay, gradients clipped, and a
# learning rate that falls in a straight line to nothing.
# `train_sampling_strategy="sequential"` keeps the rows in their order, so that the loop
# can follow.

# %% tags=["measures"]
trainer = Trainer(
    model=fresh_model(), train_dataset=data,
    args=TrainingArguments(
        "out", max_steps=STEPS, logging_steps=1, save_strategy="no", use_cpu=not GPU, disable_tqdm=True,
        learning_rate=5e-3, per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATE,
        train_sampling_strategy="sequential",
    ),
)
trainer.remove_callback(PrinterCallback)
trainer.train()
by_trainer = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

# %% [markdown]
# Then the loop. Four lines in it are easily forgotten: the tokens of *all* micro-batches,
# clipping, the schedule, and clearing the gradients after the step rather than after each
# micro-batch.
#
# `mean_of_means=True` forgets the first of them, to show what happens. It divides by the
# number of micro-batches, as many recipes do. That is right only if each micro-batch has
# as many labels as the next.

# %% tags=["measures"]
def train_by_loop(mean_of_means=False):
    accelerator, model, losses = Accelerator(cpu=not GPU), fresh_model(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=STEPS)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    batches = iter(loader)
    for _ in range(STEPS):
        micro_batches = [next(batches) for _ in range(ACCUMULATE)]
        tokens = sum((batch["labels"][:, 1:] != -100).sum() for batch in micro_batches)
        step_loss = 0.0
        for batch in micro_batches:
            count = {} if mean_of_means else {"num_items_in_batch": tokens}
            loss = model(**batch, **count).loss / (ACCUMULATE if mean_of_means else 1)
            accelerator.backward(loss)
            step_loss += loss.item()
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(step_loss)
    return losses, dict(accelerator.unwrap_model(model).named_parameters())


by_loop, loop_weights = train_by_loop()
by_means, weights_of_means = train_by_loop(mean_of_means=True)

# %% tags=["measures"] alt="Loss by optimizer step of Trainer, of a loop, and of a loop that averages means: the first two coincide, the third strays a little."
table(
    "losses", "Loss of each optimizer step",
    {"step": "Step", "trainer": "Trainer, nats", "loop": "Own loop, nats"},
    [{"step": number, "trainer": a, "loop": b} for number, (a, b) in enumerate(zip(by_trainer, by_loop), 1)],
    kind="measured",
)
_, axes = plt.subplots(figsize=(7, 2.8))
axes.plot(range(1, STEPS + 1), by_trainer, marker="o", label="Trainer")
axes.plot(range(1, STEPS + 1), by_loop, linestyle="", marker="x", markersize=9, label="loop")
axes.plot(range(1, STEPS + 1), by_means, linestyle=":", label="loop that averages means")
axes.set(xlabel="optimizer step", ylabel="loss, nats")
axes.legend()
plt.show()

# %% [markdown]
# The crosses lie on the line of `Trainer`. The dotted line looks almost right too, which
# is the trouble: a loss curve does not show the mistake. Weights do. So the next cell
# compares weights, and relates each difference to how far training has moved the weights
# at all. It also bounds the loss of the last step, so that a run in which nothing is
# learned fails here.

# %% tags=["measures"]
start_weights, trainer_weights = dict(fresh_model().named_parameters()), dict(trainer.model.named_parameters())


def largest_difference(weights, others):
    return max((weights[name].cpu() - others[name].cpu()).abs().max().item() for name in weights)


moved = largest_difference(loop_weights, start_weights)
off, off_by_means = (largest_difference(weights, trainer_weights) / moved for weights in (loop_weights,
                                                                                          weights_of_means))
WEIGHT = "against the largest change of a weight by training"
for name, sentence, value, unit, bound in (
    ("loop-difference",
     "Largest relative difference of the losses of the Accelerate loop from those of Trainer, over 8 "
     "steps in fp32", max(abs(a - b) / a for a, b in zip(by_trainer, by_loop)), "", {"at_most": 1e-4 if GPU else 1e-6}),
    ("loop-learned", "Loss of the last of these steps, which are all on the same eight rows, against that of the first",
     by_loop[-1] / by_loop[0], "x", {"at_most": 0.8}),
    ("loop-weights",
     f"Largest difference of a weight after these steps from the same weight of Trainer's model, {WEIGHT}",
     off, "", {"at_most": 1e-2 if GPU else 1e-4}),
    ("loop-of-means", "Largest difference of a weight for a loop that averages the means of its micro-batches, "
     + WEIGHT, off_by_means, "", {"at_least": 0.01}),
):
    claim(name, sentence, value, unit, kind="measured", **bound)

# %% [markdown]
# ## What an evaluation keeps
#
# With `compute_metrics`, `Trainer` collects the logits of every batch on the GPU until
# the evaluation ends. For a language model that is one number per token and entry of the
# vocabulary. `preprocess_logits_for_metrics` may reduce each batch first. We count the
# bytes per token, without and with it.
#
# The small vocabulary makes this cheap to run; what is kept grows in proportion to it, so
# the count carries over.
#
# Expect the bytes of one fp32 number for each entry of the vocabulary without it, and
# those of one integer with it.

# %% tags=["measures"]
def kept_per_token(**options):
    arguments = TrainingArguments("out", per_device_eval_batch_size=8, use_cpu=not GPU, disable_tqdm=True)
    evaluated = Trainer(model=fresh_model(), args=arguments, compute_metrics=lambda seen: {}, **options)
    evaluated.remove_callback(PrinterCallback)
    return evaluated.predict(data[:32]).predictions.nbytes / (32 * LENGTH)


logits = kept_per_token()
tokens = kept_per_token(preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(dim=-1))
KEPT = "Bytes of predictions that Trainer keeps per token"
for name, sentence, value, expected in (
    ("kept-logits", f"{KEPT}, vocabulary of {VOCABULARY:,}", logits, 4 * VOCABULARY),
    ("kept-tokens", f"{KEPT}, where preprocess_logits_for_metrics takes the argmax", tokens, 8),
):
    claim(name, sentence, value, "bytes", kind="measured", at_least=expected, at_most=expected)

# %% [markdown]
# The counts are what the arithmetic says. So arithmetic may speak for sizes that do not
# fit here: an evaluation of a thousand sequences with the vocabulary of Llama 3, one
# batch of it, and the evaluation of a user with many classes, whose report is linked in
# the claim. One batch of logits exists in any case, however they are reduced afterwards.

# %%
GiB, TOKENS, ENTRIES = 2**30, 1000 * 1024, 128256  # tokens of an evaluation, entries of Llama 3's vocabulary
ROWS, CLASSES, USER = 469_530, 9_997, "https://github.com/huggingface/transformers/issues/7232"
whole, one_batch, classifier = (4 * count / GiB for count in (TOKENS * ENTRIES, 8 * 1024 * ENTRIES, ROWS * CLASSES))
for name, sentence, value, unit, least, most, source in (
    ("logits-of-an-evaluation", "fp32 logits of 1,000 sequences of 1,024 tokens, vocabulary of 128,256",
     whole, "GiB", 480, 500, None),
    ("tokens-of-an-evaluation", "The predicted tokens of these sequences, 8 bytes each",
     TOKENS * 8 / 2**20, "MiB", 7, 9, None),
    ("logits-of-a-batch", "fp32 logits of one evaluation batch of 8 sequences of 1,024 tokens, vocabulary of 128,256",
     one_batch, "GiB", 3.8, 4.1, None),
    ("classifier-logits", f"fp32 logits of {ROWS:,} rows and {CLASSES:,} classes", classifier, "GiB", 17.4, 17.6, USER),
    ("classifier-classes", f"The predicted classes of {ROWS:,} rows, 8 bytes each",
     ROWS * 8 / 2**20, "MiB", 3.5, 3.7, USER),
):
    claim(name, sentence, value, unit, kind="derived", at_least=least, at_most=most, source=source)

# %% alt="Bars of what an evaluation keeps: the logits of one batch are small, those of many sequences of a language model outgrow any GPU."
bars({"logits, one batch of 8": one_batch, "logits, 469,530 rows x 9,997 classes": classifier,
      "logits, 1,000 sequences": whole}, "kept until the evaluation ends, GiB")

# %% [markdown]
# ## From version 4 to version 5
#
# The arguments of `TrainingArguments` in transformers 4.41.2 that this version refuses,
# and what to write instead. Where a remark begins with `=`, it is the value for the new
# name; the others say why nothing is needed. The last cell looks each name up in the
# installed version.
#
# An unknown argument raises an error, so none of these goes unnoticed. What the error
# does not say is the new name.

# %%
GONE = {  # old name: (new name, remark)
    **dict.fromkeys(("dispatch_batches", "split_batches"), ("accelerator_config", "")),
    **dict.fromkeys(("fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"), ("fsdp_config", "")),
    **dict.fromkeys(("push_to_hub_model_id", "push_to_hub_organization"), ("hub_model_id", "")),
    **dict.fromkeys(("half_precision_backend", "fp16_backend"), ("", "nothing: PyTorch's own is the only one")),
    **dict.fromkeys(("overwrite_output_dir", "tpu_num_cores", "past_index", "use_legacy_prediction_loop",
                     "mp_parameters", "ray_scope"), ("", "nothing")),
    "evaluation_strategy": ("eval_strategy", ""), "no_cuda": ("use_cpu", ""), "push_to_hub_token": ("hub_token", ""),
    "group_by_length": ("train_sampling_strategy", '="group_by_length"'), "adafactor": ("optim", '="adafactor"'),
    "warmup_ratio": ("warmup_steps", "=0.1, a float below 1"), "torchdynamo": ("torch_compile_backend", ""),
    "include_inputs_for_metrics": ("include_for_metrics", '=["inputs"]'),
    "include_tokens_per_second": ("include_num_input_tokens_seen", ""),
    "per_gpu_train_batch_size": ("per_device_train_batch_size", ""),
    "per_gpu_eval_batch_size": ("per_device_eval_batch_size", ""), "save_safetensors": ("", "nothing: always"),
    "tpu_metrics_debug": ("debug", '="tpu_metrics_debug"'), "use_ipex": ("", "nothing: PyTorch itself"),
    "use_mps_device": ("", "nothing: the device is found"), "fp16_opt_level": ("", "nothing: apex is gone"),
    "jit_mode_eval": ("", "nothing: torch_compile"), "logging_dir": ("", "TENSORBOARD_LOGGING_DIR in the environment"),
}

# %%
fields = TrainingArguments.__dataclass_fields__
accepted = {name for name in fields if fields[name].init}
assert not accepted.intersection(GONE), "these are accepted still"
assert accepted.issuperset(new for new, _ in GONE.values() if new), "these are not accepted either"
table(
    "arguments", "TrainingArguments of transformers 4.41.2 that version 5.23.0 refuses",
    {"old": "Version 4", "new": "Now"},
    [{"old": old, "new": new + remark} for old, (new, remark) in sorted(GONE.items())], kind="derived",
)

# %% [markdown]
# ## What came out, and what to do
#
# - **The loop does what `Trainer` does**, to rounding, in losses and in weights. Write
#   your own when you need to change what happens between forward pass and optimizer step.
# - **Count the tokens of all micro-batches.** The loop that averages means ends with
#   other weights, and its loss curve hardly shows it.
# - **Keep predictions, not logits.** With a language model's vocabulary the logits of an
#   evaluation do not fit on any GPU; the predicted tokens fit everywhere.
# - **Old arguments fail loudly.** Look them up in the table above.
#
# Try it yourself: leave clipping out of the loop, or the schedule, and run the notebook
# again. The cell that compares weights then fails, and names the claim that does not
# hold.

# %%
# Compares this run with the published records. In Colab it also offers the record of this machine, to send.
from evidence.finish import finish

finish()
