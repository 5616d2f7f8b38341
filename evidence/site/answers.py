"""Answers of dryrun as JSON by address, answers/<model>/<gpu>.json, for programs that can fetch and cannot run a command.

They are made once a site is built (`make site`): 39 models on 87 GPUs take a minute. answers.schema.json says what each field is.
"""

import json
import multiprocessing
import re
import sys
from pathlib import Path
from urllib.parse import urlencode

from dryrun import web

from ..notebooks import project
from . import addresses

SCHEMA = Path(__file__).with_name("answers.schema.json")
COUNTS = (1, 2, 4, 8)
LENGTH, PROMPT, NEW = 4096, 1024, 256  # tokens, or fewer where a model has fewer positions
FORMATS = ("bf16", "int8", "int4-128")  # of weights that answer
DIGITS = 4


def write(site, models=None, say=print):
    """Writes the answers into a built site. models: names; all with a profile by default."""
    offered = web.choices()
    chosen = [one for one in offered["models"] if one["name"] in (models or [one["name"]])]
    folder = Path(site, "answers")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.json").write_text(SCHEMA.read_text(encoding="utf-8"), encoding="utf-8")
    _write(folder / "index.json", index(chosen, offered["gpus"]))
    keys, root = [gpu["name"] for gpu in offered["gpus"]], addresses.of_site()
    with multiprocessing.get_context("spawn").Pool(initializer=_forget_torch) as pool:
        jobs = [pool.apply_async(_write_model, (folder, one, keys, root)) for one in chosen]
        for number, job in enumerate(jobs, 1):
            job.get()
            say(f"answers: {number} of {len(jobs)} models")


def index(models, gpus):
    """What can be asked, and where the answer is."""
    root = addresses.of_site()
    return {
        "address": f"{root}answers/{{model}}/{{gpu}}.json",
        "schema": f"{root}answers/schema.json",
        "dryrun": project()["version"],
        "gpus_of_a_question": list(COUNTS),
        "models": [{**one, "questions": questions(one["name"], one["positions"])} for one in models],
        "gpus": gpus,
    }


def of(model, positions, gpu, root):
    """The file of a model and a GPU."""
    return {
        "model": model,
        "gpu": gpu,
        "dryrun": project()["version"],
        "page": f"{root}your-model/?{urlencode({'model': model, 'gpu': gpu})}",
        "answers": [answer for question in questions(model, positions) for answer in _on(question, gpu)],
    }


def questions(model, positions):
    """Commands without a GPU."""
    length = min(LENGTH, positions or LENGTH)
    prompt = min(PROMPT, length - NEW)
    trained = [f"train {model}{method} --length {length} --checkpointing" for method in (" --lora 16", " --qlora 16", "")]
    return [*trained, *(f"infer {model} --prompt {prompt} --new {NEW} --weights {weights}" for weights in FORMATS)]


def _forget_torch():
    """Profiles answer alone: where torch is installed, what they cannot answer is refused all the same."""
    sys.modules["torch"] = None  # type: ignore[assignment]


def _write_model(folder, model, gpus, root):
    (folder / model["name"]).mkdir(exist_ok=True)
    for gpu in gpus:
        _write(folder / model["name"] / f"{gpu}.json", of(model["name"], model["positions"], gpu, root))


def _on(question, gpu):
    """The answers to a question for each number of GPUs, or the one refusal of what one GPU is refused."""
    for count in COUNTS:
        command = f"{question} --gpu {gpu}" + (f" --gpus {count}" if count > 1 else "")
        found = web.row(command.split())
        yield {"command": f"dryrun {command}", **_rounded(found)}
        if "error" in found and count == 1:
            return


def _rounded(row):
    return {name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for name, value in row.items()}


def _write(path, found):
    """One answer on a line."""
    text = json.dumps(found, ensure_ascii=False)
    path.write_text(re.sub(r'(?:(?<=\[)|(?<=,) )(?=\{"(?:command|name)")', "\n", text) + "\n", encoding="utf-8")
