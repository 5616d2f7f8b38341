# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
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
# # Fine-tune a chat model on a free T4
#
# **Can a GPU that costs nothing teach a chat model to answer in your way?** By our prediction yes, with QLoRA. Here the model learns to
# answer a question about a table with one SQL query, and with nothing else. This teaches a form. Facts that the model does not know
# need many more examples, or belong in the prompt.
#
# In Colab choose *Runtime, Change runtime type, T4 GPU*, then *Run all*. The notebook takes the largest of five models that
# your GPU trains within half an hour, with as many conversations at a time as fit. It trains the model, leaves an adapter and a merged model, and
# compares the time with the prediction for your GPU.
#
# *Not run on a GPU yet. The outputs on this page come from a run without GPU and network: a model of 135 million parameters on a CPU, and
# made-up tables. With a GPU the same cells take a real model and real data.*

# %% tags=["set-up"]
import os
import subprocess
import sys
from importlib.util import find_spec

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # one GPU, also where there are two
if not all(map(find_spec, ("dryrun", "peft", "bitsandbytes"))):  # in Colab: torch stays; peft refuses Colab's torchao
    needed = (
        "transformers==5.23.0 accelerate==1.15.0 peft==0.21.2 bitsandbytes==0.50.2 torchao==0.18.0 "
        "pandas matplotlib"
    )
    ours = "gpu-dryrun @ git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0#subdirectory=dryrun"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needed.split(), ours], check=True)

# %% [markdown]
# ## Which model does your GPU train?
#
# Predicted before anything is downloaded: the memory at the peak and the minutes for all rows, both at the high end of the prediction.
# An update always averages 16 conversations. Where eight at a time do not fit, fewer do, and more such batches make an update.
# Nobody has published training times of some GPUs, so these have no minutes here. Training needs none.

# %% tags=["fold"]
import shutil

import pandas as pd
import torch
from IPython.display import HTML

from dryrun import Cluster, Job, Refusal, predict

MODELS = [f"Qwen/Qwen3-{size}" for size in ("14B", "8B", "4B", "1.7B", "0.6B")]
GPU = torch.cuda.get_device_name() if torch.cuda.is_available() else None  # or a name that `dryrun gpus` lists
ROWS, HELD_OUT = (800, 32) if GPU else (160, 16)  # conversations to learn, and to judge by
UPDATE, LENGTH = 16, 256  # conversations of an update, tokens of each at most

try:
    predict(Job(MODELS[-1]), CLUSTER := Cluster(GPU or "t4"))
except Refusal as refused:  # without a prediction the same cells train all the same
    CLUSTER = None
    print(f"No time is predicted for {GPU} ({refused.problem}). So the table has no minutes, "
          "and the bar of the training shows them.")  # fmt: skip
    if refused.nearest:
        print(f"If it is one of {', '.join(refused.nearest)}, write that name as GPU.")

# %% tags=["fold"]
def tried(model_name):
    """(the job, its step, whether it fits) with as many conversations at a time as fit."""
    for batch in (8, 4, 2, 1):
        job = Job(
            model_name, method="qlora", checkpointing=True, batch=batch, accumulation=UPDATE // batch, length=LENGTH,
        )  # fmt: skip
        step = predict(job, CLUSTER or Cluster("t4"))  # a step needs about the same memory on any GPU
        if fits := step.fits if CLUSTER else step.needed.fits(torch.cuda.mem_get_info()[1]):
            break
    return job, step, fits


found = []
for model_name in MODELS:
    job, step, fits = tried(model_name)
    size = 2 * job.model.parameters / 1e9  # in 16 bits: the download, and the merged model
    minutes = step.prediction.high * 800 / UPDATE / 60 if CLUSTER else None
    disk = shutil.disk_usage(".").free / 1e9
    no = "GPU memory" if not fits else "time" if CLUSTER and minutes >= 30 else "disk" if 2.1 * size > disk else ""
    found.append({
        "model": model_name, "at a time": job.batch,
        "GB to download": round(size, 1), "GiB at most": round(step.needed.high / 2**30, 1),
        f"on {GPU or 'a T4'}": step.verdict.short if CLUSTER else "it fits" if fits else "it does not fit",
        "minutes at most": round(minutes) if CLUSTER else "not predicted",
        "possible": f"no: {no}" if no else "yes",
    })  # fmt: skip

pd.set_option("display.max_colwidth", None)
HTML(pd.DataFrame(found).to_html(index=False))

# %% [markdown]
# ## Your choice
#
# Another model, of the Hub or in a folder? Name it as `MODEL`. A model that `dryrun` does not know by name is predicted by its config.json.

# %%
from huggingface_hub import hf_hub_download

SMALL = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what a CPU trains in minutes
MODEL = next((row["model"] for row in found if row["possible"] == "yes"), MODELS[-1]) if GPU else SMALL
DATA = "b-mc2/sql-create-context"  # questions, tables and SQL of WikiSQL and Spider, CC BY 4.0
try:
    KNOWN = Job(MODEL).model.name
except ValueError:  # a model that dryrun has no name for
    KNOWN = hf_hub_download(MODEL, "config.json")
BATCH = tried(KNOWN)[0].batch
ACCUMULATION = UPDATE // BATCH
# T4 and older have no bf16, and fp16 needs a loss scaler, which `Trainer` brings.
half = torch.bfloat16 if GPU and torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
dtype = half if GPU else torch.float32

download = Job(KNOWN).model.parameters * 2 / 1e9
print(f"{MODEL}: {download:.1f} GB to download, and 22 MB of data. Computed in {dtype}.")

# %% [markdown]
# ## What outlives the session
#
# When a Colab session ends, its disk is deleted. So in Colab the notebook asks for your Google Drive, where it keeps checkpoints and the adapter.
# If you refuse, the adapter is downloaded at the end. *Run all* in a new session goes on from the last complete checkpoint: after a change of the data,
# the length or the rate, delete the folder `checkpoints` first. Drive keeps deleted checkpoints in its trash, where they take space until you empty it.
#
# To keep the adapter on the Hub as well, name a repository as `PUSH_TO`. Colab reads your token from a secret (the key in the left bar) with the name `HF_TOKEN`.

# %%
from pathlib import Path

from huggingface_hub import create_repo, upload_folder, whoami

PUSH_TO = ""  # such as "your-name/sql-adapter": a private repository, made where there is none
COLAB, DRIVE = "google.colab" in sys.modules, Path("/content/drive/MyDrive")
HERE = FOLDER = Path("finetuned", MODEL.rpartition("/")[2])
if COLAB:
    from google.colab import drive, files

    try:
        drive.mount(str(DRIVE.parent))
        FOLDER = DRIVE / HERE
    except Exception as error:  # as where you refuse
        print(f"No Drive is mounted: {error}")
if PUSH_TO:
    print(f"{whoami()['name']} pushes to {PUSH_TO}")  # a missing token is an error now, and not after the training
print(f"Checkpoints and the adapter go to {FOLDER}/.")

# %% [markdown]
# ## Data: conversations, and labels on the answers
#
# For your own data give `OWN`: lines of JSON, pasted or in a file, or a dataset on the Hub. Each row has a `question` and an `answer`.
# `tokens_of` writes each as the model's own chat template does, and puts `-100` on all tokens of the question, so the loss counts
# the answer alone.

# %%
import json
import random

from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token


OWN = ""  # lines of {"question": ..., "answer": ...}, or a file of them, or a dataset on the Hub; "": the example


def rows_of(own):
    """Rows with a question and an answer: from lines of JSON, from a file of them, or from the Hub."""
    is_text = own.lstrip().startswith("{")
    if is_text or Path(own).is_file():
        lines = (own if is_text else Path(own).read_text("utf-8")).splitlines()
        table = [json.loads(line) for line in lines if line.strip()]
    else:
        from datasets import load_dataset

        table = list(load_dataset(own, split="train"))
    if not {"question", "answer"} <= set(table[0]):
        named = ", ".join(table[0])
        raise ValueError(f"OWN: its rows have {named}. Fix: call two of these columns question and answer")
    return table


if OWN:
    table = rows_of(OWN)
    HELD_OUT = max(1, min(HELD_OUT, len(table) // 10))
    random.Random(0).shuffle(table)
else:
    file = hf_hub_download(DATA, "sql_create_context_v4.json", repo_type="dataset")
    table = random.Random(0).sample(json.loads(Path(file).read_text(encoding="utf-8")), ROWS + HELD_OUT)


def question(row):
    asked = f"{row['context']}\n\n{row['question']} Answer with one SQL query." if "context" in row else row["question"]
    return [{"role": "user", "content": asked}]


def tokens_of(row):
    """The tokens of a conversation, and its labels."""
    answer = [{"role": "assistant", "content": row["answer"]}]
    template = {"enable_thinking": False}  # of Qwen3; other templates ignore it
    asked = tokenizer.apply_chat_template(question(row), add_generation_prompt=True, **template)["input_ids"]
    whole = tokenizer.apply_chat_template(question(row) + answer, **template)["input_ids"]
    assert whole[: len(asked)] == asked, "the template writes the question in another way when an answer follows"
    return {"input_ids": whole, "attention_mask": [1] * len(whole), "labels": [-100] * len(asked) + whole[len(asked) :]}


rows = [(row, tokens) for row in table if len((tokens := tokens_of(row))["input_ids"]) <= LENGTH]
learned, held_out = rows[:-HELD_OUT], rows[-HELD_OUT:]
lengths = [len(tokens["input_ids"]) for _, tokens in learned]
print(f"{len(learned)} conversations to learn, {sum(lengths):,} tokens, the longest {max(lengths)}")
HTML(pd.DataFrame([row for row, _ in learned[:3]]).to_html(index=False))

# %% [markdown]
# ## The model in 4 bits, with adapters
#
# The weights stay as they are, in 4 bits. What learns are two thin matrices beside each linear layer, in fp32
# ([why](https://performance-and-scalability.github.io/performance-and-scalability/training/qlora/#qlora)). On a CPU the small model stays in fp32.

# %%
import gc

from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig


def forget():
    """Frees the models of an earlier run: two would not fit."""
    global model, trainer, base, merged
    model = trainer = base = merged = None
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()


def load(dtype):
    """The model with new adapters, that computes in `dtype`."""
    four_bit = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype,
    )
    frozen = AutoModelForCausalLM.from_pretrained(
        MODEL,
        dtype=dtype,
        quantization_config=four_bit if GPU else None,
        device_map={"": 0} if GPU else None,  # all of it on the GPU, or an error
    )
    return get_peft_model(frozen, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))


forget()
model = load(dtype)
model.print_trainable_parameters()

# %% [markdown]
# What does it answer before it has learned anything? Questions that it will not see in training:

# %%
def answers(model, rows):
    """What the model writes to each question, all at once."""
    chats = [question(row) for row, _ in rows]
    asked = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, enable_thinking=False, padding=True, return_dict=True, return_tensors="pt",
    ).to(model.device)  # fmt: skip
    with torch.inference_mode():
        written = model.eval().generate(**asked, max_new_tokens=64, do_sample=False)
    return tokenizer.batch_decode(written[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)


before = answers(model, held_out)
print(held_out[0][0]["question"], before[0], sep="\n\n")

# %% [markdown]
# ## Train
#
# An update averages 16 conversations. Stopped in the middle? Run all cells again, in a new session too: training goes on from the last complete
# checkpoint. One that was cut off has no `trainer_state.json`, which is written last.
#
# **fp16 has a small range**, and a T4 has no bf16. `Trainer` therefore multiplies the loss by a scale. Where a gradient overflows all the
# same, it skips the update and halves the scale. Some skipped updates at the start are normal, and the schedule waits for them because `optim`
# is not the fused default, [which hides a skip](https://performance-and-scalability.github.io/performance-and-scalability/training/own-loop/#skipped).
# When many in a row are skipped, no scale helps, so the model is trained once more in fp32.

# %%
import math
import time

from transformers import DataCollatorForSeq2Seq, Trainer, TrainerCallback, TrainingArguments

MOST_SKIPPED = 10  # in a row: by then the scale is a thousandth of what it was


class Watch(TrainerCallback):
    """The seconds of each update, and an end to a training whose gradients stay infinite or NaN."""

    def __init__(self):
        self.seconds, self.in_a_row = [], 0

    def on_step_begin(self, *_, **__):
        self.begun = time.perf_counter()

    def on_step_end(self, *_, **__):
        if GPU:
            torch.cuda.synchronize()  # until then its kernels still run
        self.seconds.append(time.perf_counter() - self.begun)

    def on_log(self, *_, logs, **__):
        if "grad_norm" in logs:  # comes before this update is saved
            self.in_a_row = 0 if math.isfinite(logs["grad_norm"]) else self.in_a_row + 1
        if self.in_a_row >= (MOST_SKIPPED if dtype == torch.float16 else 1):  # without a scale nothing skips the update
            raise FloatingPointError("Gradients are infinite or NaN: halve learning_rate, and run on from the model.")


# %%
def trained(watch):
    """A `Trainer` that has trained the model, on from the last complete checkpoint."""
    checkpoints = FOLDER / "checkpoints"
    arguments = TrainingArguments(
        str(checkpoints),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATION,
        activation_checkpointing=True,
        bf16=dtype == torch.bfloat16,
        fp16=dtype == torch.float16,
        optim="adamw_torch" if dtype == torch.float16 else "adamw_torch_fused",
        learning_rate=2e-4 if GPU else 1e-3,  # a model as small as that of the CPU wants a higher one
        lr_scheduler_type="cosine",
        warmup_steps=3,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=10 if GPU else 3,
        eval_on_start=True,
        per_device_eval_batch_size=BATCH,
        prediction_loss_only=True,  # keeps no logits
        save_steps=10,
        save_total_limit=1,
        use_cpu=not GPU,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[tokens for _, tokens in learned],
        eval_dataset=[tokens for _, tokens in held_out],
        data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        callbacks=[watch],
    )
    if GPU:
        torch.cuda.empty_cache()  # what loading left: the memory of the GPU is then that of training
    if dtype != torch.float16:
        for scaler in checkpoints.glob("*/scaler.pt"):
            scaler.unlink()  # of a training in fp16, which no other dtype can load
    complete = [state.parent for state in checkpoints.glob("checkpoint-*/trainer_state.json")]
    last = max(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)
    trainer.train(resume_from_checkpoint=last and str(last))
    return trainer


# %%
trainer = None
try:
    trainer = trained(clock := Watch())
except FloatingPointError:
    if dtype != torch.float16:
        raise
    print("No scale keeps this model's gradients in the range of fp16: it is trained in fp32, which takes longer.")
if trainer is None:  # out of the `except`, whose error holds the model
    dtype, BATCH, ACCUMULATION = torch.float32, 1, BATCH * ACCUMULATION  # fp32 takes more memory for each conversation
    forget()
    model = load(dtype)
    trainer = trained(clock := Watch())

# %% [markdown]
# The line that counts is that of the conversations that the model does not learn. When it rises again, the model learns your lines by
# heart: stop there. The gradient norm should stay in its range. Where one point is far above all others, look at the conversations of that update.

# %% alt="Left, the loss of what is learned and of what is held out, update by update: both fall. Right, the gradient norm."
import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

set_matplotlib_formats("svg")
_, (axes, right) = plt.subplots(1, 2, figsize=(9, 3), width_ratios=(3, 2), layout="constrained")
for name, label in (("loss", "learned"), ("eval_loss", "held out")):
    points = [(entry["step"], entry[name]) for entry in trainer.state.log_history if name in entry]
    axes.plot(*zip(*points), label=label, marker="o" if name == "eval_loss" else "")
axes.set(xlabel="update", ylabel="loss", ylim=0)
axes.legend()
norms = {entry["step"]: entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry}
skipped = [step for step, norm in norms.items() if not math.isfinite(norm)]
right.plot(norms.keys(), [norm if math.isfinite(norm) else math.nan for norm in norms.values()], color="C2")
for step in skipped:
    right.axvline(step, color="C3", linestyle=":")
right.set(xlabel="update", ylabel="gradient norm (dotted: skipped)", ylim=0)
plt.show()
print(f"skipped because a gradient overflowed: {len(skipped)} of {len(norms)} updates")

# %% [markdown]
# ## Predicted, and measured
#
# The time of an update and the memory of your GPU, beside what `dryrun` says of such a step. The first updates load kernels, so
# the median counts. Memory is that of the longest batch, time that of the mean one.

# %%
import statistics
from dataclasses import replace

from dryrun import compare

compared = None
if not GPU:
    print("No time is predicted for a CPU.")
elif not clock.seconds:
    print("Nothing was timed: training was over before. Delete the checkpoints to train again.")
else:
    batches = [lengths[place : place + BATCH] for place in range(0, len(lengths), BATCH)]
    padded = round(statistics.mean(map(max, batches)))  # a conversation is padded to the longest beside it
    job = Job(
        KNOWN, method="qlora", checkpointing=True, batch=BATCH, accumulation=ACCUMULATION, length=padded,
        **({"precision": "fp32"} if dtype == torch.float32 else {"attention": "efficient"}),
    )  # fmt: skip
    seconds = statistics.median(clock.seconds)
    compared = compare(job, CLUSTER, seconds) if CLUSTER else None
    free, total = torch.cuda.mem_get_info()
    needed = predict(replace(job, length=max(lengths)), CLUSTER or Cluster("t4")).needed
    low, high, peak = needed.expected / 2**30, needed.high / 2**30, (total - free) / 2**30
    print(compared or f"An update took {seconds:.3g} seconds. No time is predicted for {GPU}.")
    print(f"GiB of the GPU: {low:.1f} predicted, {high:.1f} at most, {peak:.1f} measured")

# %% [markdown]
# Few people publish how long a training step takes on their GPU, so for many the error of the prediction is not known. Yours would help:
# [open an issue](https://github.com/performance-and-scalability/performance-and-scalability/issues/new?title=A+measured+step)
# with what this cell prints. It holds the GPU, the job, the time and the versions, and nothing about you.

# %%
name = MODEL.rpartition("/")[2].lower()
print(json.dumps(compared.row | {"model": name}, indent=1) if compared else "There is nothing to send.")

# %% [markdown]
# ## What did it learn?

# %%
after = answers(model, held_out)
right = [row["answer"] for row, _ in held_out]
for name, given in (("before", before), ("after", after)):
    exact = sum(answer.strip() == wanted for answer, wanted in zip(given, right))
    print(f"{name}: {exact} of {len(right)} held-out questions answered by the query of the data, and nothing else")
shown = zip([row["question"] for row, _ in held_out], [" ".join(answer.split()) for answer in before], after, right)
HTML(pd.DataFrame(list(shown)[:3], columns=["question", "before", "after", "right"]).to_html(index=False))

# %% [markdown]
# Another query can be right too, and counts as wrong here. To judge answers by what they return, run them on a database.
#
# ## Keep it: the adapter
#
# The adapter is small, and needs the original model beside it. `PeftModel.from_pretrained` opens it from the folder, and from the Hub by the name in `PUSH_TO`.

# %%
model.save_pretrained(FOLDER / "adapter")
tokenizer.save_pretrained(FOLDER / "adapter")
if PUSH_TO:
    create_repo(PUSH_TO, private=True, exist_ok=True)
    upload_folder(repo_id=PUSH_TO, folder_path=FOLDER / "adapter", commit_message="Adapter")
    print(f"pushed to https://huggingface.co/{PUSH_TO}")

# %%
archive = shutil.make_archive(f"{HERE.name}-adapter", "zip", FOLDER / "adapter")
if COLAB and FOLDER == HERE:  # else it is in your Drive; to download it from there too, call the next line alone
    files.download(archive)
print(f"{Path(archive).name}: {Path(archive).stat().st_size / 1e6:,.0f} MB")

# %% [markdown]
# ## A merged model
#
# Merged into the weights in 16 bits, model and adapter are one model that every server
# opens. The merge goes file by file over weights that were never rounded to 4 bits, so the host's memory holds one file and never the
# whole model. The result stays on the session's disk, because it would fill a free Drive, and the adapter makes it again.

# %%
from huggingface_hub import snapshot_download
from safetensors.torch import load_file, save_file

model = trainer = None
gc.collect()
if GPU:
    torch.cuda.empty_cache()

adapter, merged_to = FOLDER / "adapter", HERE / "merged"
checkpoint = Path(MODEL if Path(MODEL).is_dir() else snapshot_download(MODEL, ignore_patterns=["*.bin", "*.gguf"]))
settings = json.loads((adapter / "adapter_config.json").read_text())
factors = load_file(adapter / "adapter_model.safetensors")
factors = {name.removeprefix("base_model.model."): factor for name, factor in factors.items()}
shutil.copytree(  # configuration and tokenizer
    checkpoint, merged_to, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", ".*"), dirs_exist_ok=True,
)  # fmt: skip
for file in sorted(checkpoint.glob("*.safetensors")):
    tensors = load_file(file)
    for name, weight in tensors.items():
        layer = name.removesuffix(".weight")
        if f"{layer}.lora_A.weight" in factors:
            a, b = factors.pop(f"{layer}.lora_A.weight"), factors.pop(f"{layer}.lora_B.weight")
            added = settings["lora_alpha"] / settings["r"] * b.float() @ a.float()
            tensors[name] = (weight.float() + added).to(weight.dtype)
    save_file(tensors, merged_to / file.name, metadata={"format": "pt"})
if factors:
    left = next(iter(factors))
    raise ValueError(f"no file has a weight for {left}: merge by `merge_and_unload` of peft in place of this cell")

size = sum(file.stat().st_size for file in merged_to.glob("*.safetensors"))
if not GPU or torch.cuda.mem_get_info()[0] > 1.3 * size:  # else the host would need minutes
    merged = AutoModelForCausalLM.from_pretrained(merged_to, dtype="auto", device_map=0 if GPU else "cpu")
    print(answers(merged, held_out[:1])[0])
base = merged = None

# %% [markdown]
# **To serve it**: `vllm serve finetuned/Qwen3-4B/merged`, on a GPU newer than a T4. On a T4 we ran no server.
#
# **For llama.cpp and Ollama** write it as GGUF, in a terminal or behind `!`:
#
# ```bash
# git clone --depth 1 https://github.com/ggml-org/llama.cpp
# pip install sentencepiece
# python llama.cpp/convert_hf_to_gguf.py finetuned/Qwen3-4B/merged --outfile finetuned.gguf --outtype q8_0
# ```
#
# Leave out the converter's own requirements, because they install transformers 4 in place of yours. [More on serving](https://performance-and-scalability.github.io/performance-and-scalability/recipes/8b-on-24gb/#use).
#
# ## Clean up
#
# Checkpoints have done their work. The downloaded model stays in the Hub's cache until `hf cache rm` deletes it.

# %%
shutil.rmtree(FOLDER / "checkpoints", ignore_errors=True)
for folder in sorted({*FOLDER.iterdir(), *HERE.iterdir()}):
    megabytes = sum(file.stat().st_size for file in folder.rglob("*")) / 1e6
    print(f"{folder}: {megabytes:,.0f} MB")

# %% [markdown]
# ## With your data
#
# - **Your rows**: give `OWN`. For rows of another shape rewrite `question`.
# - **Longer ones**: `LENGTH` is the longest that is kept. Double it, and the first table says how many at a time still fit.
# - **How many?** A few hundred teach a form. [What makes them good, and what the model forgets](https://performance-and-scalability.github.io/performance-and-scalability/training/post-training/#forgetting).
# - **It fails?** [What you see, why, and the fix](https://performance-and-scalability.github.io/performance-and-scalability/recipes/8b-on-24gb/#trouble).
