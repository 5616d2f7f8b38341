"""GPUs, links and models by name, from the tables in `dryrun/data`. No torch.

Each value of a GPU or link has a unit, a source and the date of the source (of an undated page: when it was read). A
model's values all come from its configuration. Units are decimal, as vendors write them: 1 GB = 1e9 bytes.

- `memory`: GB; `tflops`: dense 16-bit peak with fp32 accumulation; `link`: to the other GPUs of a node
- links: peak in one direction; NVLink: all links of a GPU together; networks: one adapter
"""

import difflib
import json
from pathlib import Path
from typing import NamedTuple

GB = 1e9
DATA = Path(__file__).with_name("data")


class GPU(NamedTuple):
    memory_gb: float
    tflops: float
    link: str
    source: str  # of the TFLOP/s


class Link(NamedTuple):
    gb_per_s: float
    source: str


class Model(NamedTuple):
    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool  # embedding and output layer


def table(name):
    """The rows of a file in `dryrun/data`, with all units, sources, dates and notes."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


GPUS = {
    name: GPU(row["memory"]["value"], row["tflops"]["value"], row["link"]["value"], row["tflops"]["source"])
    for name, row in table("gpus").items()
}
LINKS = {name: Link(row["value"], row["source"]) for name, row in table("links").items()}
MODELS = {name: Model(**{key: row[key] for key in Model._fields}) for name, row in table("models").items()}


def known(what, name, names):
    """The name, if it is one of `names`; else ValueError with the nearest."""
    if name not in names:
        close = difflib.get_close_matches(str(name), names, 1, 0.3)
        meant = f", did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"{what}={name!r} is not known{meant} Choose one of: {'; '.join(names)}")
    return name


def bytes_per_second(link, adapters=1):
    return LINKS[known("link", link, LINKS)].gb_per_s * GB * adapters
