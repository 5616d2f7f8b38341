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
# # Serve an encoder on a CPU
#
# **How many texts a second can a CPU turn into vectors?** More than PyTorch lets it: OpenVINO runs the same model as one graph, in bf16 where the
# CPU has it. How many texts at a time are best depends on the model, the texts and the CPU, so it is measured here, and served so.
#
# Any machine does, also Colab's free CPU. *Run all* exports a small model for embeddings, checks that its vectors are the same, and finds the number of
# texts at a time that is fastest on this CPU. It takes some minutes. The outputs on this page
# come from two cores of a cloud server.

# %% tags=["set-up"]
import subprocess
import sys
from importlib.util import find_spec

if not all(map(find_spec, ("openvino", "transformers"))):  # in Colab: torch stays; transformers refuses Colab's torchao
    needed = "transformers==5.23.0 openvino==2026.4.1 torchao==0.18.0 torch matplotlib"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *needed.split()], check=True)

# %% [markdown]
# ## Model and texts
#
# Put your texts here: what they are decides how long they are, and that decides the speed. These are paragraphs of Python's own
# documentation, which are everywhere.

# %%
import os
from pydoc_data.topics import topics

import torch
from transformers import AutoModel, AutoTokenizer

MODEL = "sentence-transformers/all-MiniLM-L6-v2"  # 90 MB to download
paragraphs = [" ".join(part.split()) for text in topics.values() for part in text.split("\n\n")]
TEXTS = [part for part in dict.fromkeys(paragraphs) if 80 <= len(part) <= 600][:320]

tokenizer = AutoTokenizer.from_pretrained(MODEL)
bert = AutoModel.from_pretrained(MODEL, dtype=torch.float32).eval()
tokens = [len(ids) for ids in tokenizer(TEXTS)["input_ids"]]
print(f"{len(TEXTS)} texts of {min(tokens)} to {max(tokens)} tokens, on {os.cpu_count()} processors")

# %% [markdown]
# ## Export: the model and its pooling as one graph
#
# An embedding is the mean of a text's token vectors, without those of the padding. Models such as BGE take the first token in place of the mean:
# the model card says which.

# %%
import openvino


class Embedding(torch.nn.Module):
    """The mean of a text's token vectors, of length 1."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        vectors = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(vectors.dtype)
        mean = (vectors * weights).sum(1) / weights.sum(1)
        return torch.nn.functional.normalize(mean, dim=1)


model = Embedding(bert).eval()
example = tokenizer(TEXTS[:3], padding=True, truncation=True, return_tensors="pt")
example = (example["input_ids"], example["attention_mask"])
graph = openvino.convert_model(model, example_input=example)
openvino.save_model(graph, "encoder/openvino.xml", compress_to_fp16=False)
tokenizer.save_pretrained("encoder")
served = openvino.Core().compile_model("encoder/openvino.xml", "CPU")
print("computes in", served.get_property("INFERENCE_PRECISION_HINT").get_type_name())

# %% [markdown]
# ## Are the vectors the same?
#
# What a search needs is that the nearest text stays the nearest. bf16 changes vectors a little, and neighbors hardly.

# %%
import numpy


def by_pytorch(texts):
    given = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        return model(given["input_ids"], given["attention_mask"]).numpy()


def by_openvino(texts):
    given = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
    return served((given["input_ids"], given["attention_mask"]))[0]


def all_of(encode, batch):
    """The vectors of all texts, `batch` at a time."""
    return numpy.concatenate([encode(TEXTS[start : start + batch]) for start in range(0, len(TEXTS), batch)])


def nearest(vectors):
    """For each text, which other text is nearest."""
    cosines = vectors @ vectors.T
    numpy.fill_diagonal(cosines, -1)
    return cosines.argmax(1)


exact, vectors = all_of(by_pytorch, 8), all_of(by_openvino, 8)
print(f"smallest cosine similarity to PyTorch in fp32: {(exact * vectors).sum(1).min():.4f}")
print(f"{(nearest(exact) == nearest(vectors)).mean():.1%} of the texts keep their nearest other text")

# %% [markdown]
# ## How many at a time?
#
# More texts at a time read the weights less often, which helps a large model and many cores. But a batch is padded to its longest text, and padding is
# computed too, which costs most where lengths differ. Which of the two counts more here?

# %%
import time


def texts_per_second(encode, batch):
    """The better of two rounds over all texts; one before them is not counted."""
    all_of(encode, batch)
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        all_of(encode, batch)
        seconds.append(time.perf_counter() - begun)
    return len(TEXTS) / min(seconds)


BATCHES = (1, 4, 16)
speed = {
    name: [texts_per_second(encode, batch) for batch in BATCHES]
    for name, encode in (("PyTorch, fp32", by_pytorch), ("OpenVINO", by_openvino))
}
for name, rates in speed.items():
    print(name, ", ".join(f"{batch} at a time: {rate:,.0f}/s" for batch, rate in zip(BATCHES, rates)))

# %% alt="Texts per second against texts at a time, for PyTorch and OpenVINO."
import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

set_matplotlib_formats("svg")
_, axes = plt.subplots(figsize=(7, 3))
for name, rates in speed.items():
    axes.plot(BATCHES, rates, marker="o", label=name)
axes.set(xscale="log", xlabel="texts at a time", ylabel="texts/s", ylim=0)
axes.set_xticks(BATCHES, map(str, BATCHES))
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# ## Serve it
#
# A server cannot choose how many texts come at once, but it can take what waits, up to the number that was fastest above: while one batch is
# computed, the next one gathers, and no text waits for a batch to fill. Here 16 users ask for one text after the other, without the network.

# %%
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor

MOST = BATCHES[speed["OpenVINO"].index(max(speed["OpenVINO"]))]  # at a time, as measured above
waiting = queue.Queue()


def serve():
    """Computes whatever waits, up to MOST texts, as one batch."""
    while True:
        batch = [waiting.get()]
        while len(batch) < MOST and not waiting.empty():
            batch.append(waiting.get())
        try:
            for (_, answer), vector in zip(batch, by_openvino([text for text, _ in batch])):
                answer.set_result(vector)
        except Exception as error:  # a text that cannot be computed must not end the server
            for _, answer in batch:
                answer.set_exception(error)


def ask(text):
    """What a user does: send a text, wait for its vector."""
    begun, answer = time.perf_counter(), Future()
    waiting.put((text, answer))
    answer.result()
    return time.perf_counter() - begun


threading.Thread(target=serve, daemon=True).start()
begun = time.perf_counter()
with ThreadPoolExecutor(16) as users:
    waited = sorted(users.map(ask, TEXTS))
rate = len(TEXTS) / (time.perf_counter() - begun)
half, most = 1000 * waited[len(waited) // 2], 1000 * waited[int(0.95 * len(waited))]
print(f"16 users, at most {MOST} at a time: {rate:,.0f} texts/s; half wait {half:.0f} ms or less, 95 % {most:.0f} ms")

# %% [markdown]
# The folder `encoder` has all that a server needs. [The recipe](https://performance-and-scalability.github.io/performance-and-scalability/recipes/bert-on-a-cpu/#serve)
# has one in Python's standard library, a load test, int8 for CPUs without bf16, and what goes wrong.
#
# - **Another model or longer texts?** Change `MODEL` and `TEXTS`: every figure above is measured again.
# - **A classifier?** Give back `logits` in place of the mean: [how](https://performance-and-scalability.github.io/performance-and-scalability/recipes/bert-on-a-cpu/#export).
# - **More cores?** Two servers with half of the cores each often do more than one with all:
#   [threads and instances](https://performance-and-scalability.github.io/performance-and-scalability/recipes/bert-on-a-cpu/#load).
