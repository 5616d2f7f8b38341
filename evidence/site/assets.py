"""Our scripts, each with the modules that it imports, and our style sheets, by esbuild."""

import json
import tempfile
from pathlib import Path

from . import node

FOLDER = "assets"  # of docs/ and of the site. What is in a folder below it is a module: part of the scripts that import it
JOINED = "site.js"  # what extra_javascript of mkdocs.yml lists, as one file
PYTHON = "planner/python"  # of the site: what starts Python in the browser
ESBUILD = node.MODULES / "esbuild" / "bin" / "esbuild"


def bundle(docs, site, *options):
    """Writes each script with its modules. A page loads it as a plain script with names of its own, a worker as a module."""
    source, target = Path(docs, FOLDER), Path(site, FOLDER)
    _esbuild(source.glob("*.js"), target, "--bundle", "--format=iife", *options)
    _esbuild(source.glob("*.mjs"), target, "--bundle", "--format=esm", "--out-extension:.js=.mjs", *options)


def pack(docs, site, names):
    """The same, minified, with the style sheets, and with the scripts of every page as one: `names` in docs."""
    bundle(docs, site, "--minify")
    target, python = Path(site, FOLDER), Path(site, PYTHON)
    _esbuild(target.glob("*.css"), target, "--minify")
    _esbuild(python.glob("*.mjs"), python, "--minify", "--out-extension:.js=.mjs")  # saves 18 kB of what a reader fetches
    paths = [Path(docs, str(name)).resolve() for name in names]
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder, JOINED)
        joined.write_text("".join(f"import {json.dumps(str(path))}\n" for path in paths), encoding="utf-8")
        _esbuild([joined], target, "--bundle", "--format=iife", "--minify")
    for name in names:
        Path(site, str(name)).unlink()


def _esbuild(files, folder, *options):
    if names := sorted(files):  # without any it would wait for what somebody types
        node.run(ESBUILD, *options, "--charset=utf8", "--log-level=error", "--allow-overwrite", f"--outdir={folder}", *names)
