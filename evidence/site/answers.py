"""Answers of dryrun as JSON by address, answers/<model>/<gpu>.json, for programs that can fetch and cannot run a command.

They are made once a site is built (`make site`), in a minute or two. answers.schema.json says what each field is.
"""

import json
import multiprocessing
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

from dryrun.answer import job
from dryrun.cost.roofline import half_precision
from dryrun.door import web
from dryrun.models import models
from dryrun.tables import hardware

from ..notebooks import project
from . import addresses, planner

SCHEMA = Path(__file__).with_name("answers.schema.json")
COUNTS = (1, 2, 4, 8)
LENGTH, PROMPT, NEW = 2048, 1024, 256  # tokens, or fewer where a model has fewer positions; those of the form of the page your-model, which shows these answers first
QUESTIONS = (
    *(f"train {{model}}{method} --length {{length}} --checkpointing" for method in (" --lora 16", " --qlora 16", "")),
    *(f"infer {{model}} --prompt {{prompt}} --new {NEW} --batch {batch} --weights {weights}" for weights in ("bf16", "int8", "int4-128") for batch in (1, 8)),
)
SHARED = tuple(f"infer {{model}} --prompt {{prompt}} --new {NEW} --batch 1 --weights {weights}" for weights in ("bf16", "q8_0", "q4_k_m"))  # of Macs and the like
ANY_GPU = "h100-sxm5"  # what it is refused of a model, all are
DIGITS = 5
OLD = "This GPU has no bf16. Training is counted in fp16 here, which takes as long as bf16 would and needs a loss scaler."


def write(site, names=None, say=print):
    """Writes the answers into a built site. names: of models, then the index lists them alone; all with a profile by default."""
    offered = planner.choices()
    chosen = [_model(one) for one in offered["models"] if not names or one["name"] in names]
    keys, root = [gpu["name"] for gpu in offered["gpus"]], addresses.of_site()
    folder = Path(site, "answers")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schema.json").write_text(SCHEMA.read_text(encoding="utf-8"), encoding="utf-8")
    workers, spawn = min(len(chosen), os.cpu_count() or 1), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, initializer=_profiles_alone) as pool:
        jobs = [pool.submit(_write_model, folder, one, keys, root) for one in chosen]
        for number, (model, waiting) in enumerate(zip(chosen, jobs), 1):
            model["refused"] = waiting.result()
            say(f"answers: {number} of {len(jobs)} models")
    _write(folder / "index.json", index(chosen, offered["gpus"], root))


def index(found, gpus, root):
    """What can be asked, and where the answer is."""
    return {
        "address": f"{root}answers/{{model}}/{{gpu}}.json",
        "schema": f"{root}answers/schema.json",
        "dryrun": project()["version"],
        "questions": QUESTIONS,
        "gpus_of_a_question": COUNTS,
        "questions_of_shared_memory": SHARED,
        "models": found,
        "gpus": [gpu | {"aliases": hardware.ACCELERATORS[gpu["name"]].aliases} for gpu in gpus],
    }


def of(model, gpu, root, refused=()):
    """The file of a model and a GPU. refused: questions to leave out."""
    old = half_precision(gpu) == "fp16"
    asked_here = questions(model, gpu)
    answered = [asked for asked in asked_here if asked not in refused] or asked_here  # a machine that answers none says why
    return {
        "model": model["name"],
        "gpu": gpu,
        "dryrun": project()["version"],
        "page": f"{root}your-model/?{urlencode({'model': model['name'], 'gpu': gpu})}",
        **({"note": OLD} if old else {}),
        **({"left_out": model["left_out"]} if model["left_out"] else {}),
        "answers": [_answer(f"{asked} --gpu {gpu}", count) for asked in answered for count in _counts(gpu)],
    }


def questions(model, gpu):
    """Commands without the GPU, of those that are asked of it."""
    return _filled(model, SHARED if hardware.ACCELERATORS[gpu].shares_memory else QUESTIONS)


def _filled(model, asked):
    return [question.format(model=model["name"], length=model["length"], prompt=model["prompt"]) for question in asked]


def _counts(gpu):
    return (1,) if hardware.ACCELERATORS[gpu].shares_memory else COUNTS


def _model(one):
    length = min(LENGTH, one["positions"] or LENGTH)
    left_out = job.model(one["name"]).left_out
    aliases = [name for name in models.names() if name != one["name"] and models.known(name) == one["name"]]
    return one | {"aliases": aliases, "left_out": left_out, "length": length, "prompt": min(PROMPT, length - NEW)}


def _profiles_alone():
    """Where torch is installed, what profiles cannot answer is refused all the same."""
    sys.modules |= dict.fromkeys(("torch", "transformers", "numpy"))


def _write_model(folder, model, gpus, root):
    """Returns {question: why} of those that no GPU answers."""
    every = dict.fromkeys(_filled(model, (*QUESTIONS, *SHARED)))
    found = {asked: web.row([*asked.split(), "--gpu", ANY_GPU]).get("error") for asked in every}
    refused = {asked: error for asked, error in found.items() if error}
    (folder / model["name"]).mkdir(exist_ok=True)
    for gpu in gpus:
        _write(folder / model["name"] / f"{gpu}.json", of(model, gpu, root, refused))
    return refused


def _answer(question, count):
    command = question + (f" --gpus {count}" if count > 1 else "")
    found = web.row(command.split())
    if found.get("fit") == "no":  # a speed beside it would be read as one that can be had
        found |= {name: None for name in ("tokens_per_second", "low", "high", "bound", "seconds_to_first_token") if name in found}
    return {"command": f"dryrun {command}"} | {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for name, value in found.items()
    }


def _write(path, found):
    """One answer on a line."""
    text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    path.write_text(re.sub(r'(?:(?<=\[)|(?<=,) )(?=\{"(?:command|name)")', "\n", text) + "\n", encoding="utf-8")
