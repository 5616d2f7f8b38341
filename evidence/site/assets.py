"""Our scripts, each with the modules that it imports, and our style sheets, by esbuild."""

import json
import tempfile
from pathlib import Path

from . import node

FOLDER = "assets"  # of docs/ and of the site. What is in a folder below it is a module: part of the scripts that import it
JOINED = "site.js"  # what extra_javascript of mkdocs.yml lists, as one file
PYTHON = "planner/python"  # of the site
COMMON = ("--charset=utf8", "--log-level=error", "--allow-overwrite")
ESBUILD = node.MODULES / "esbuild" / "bin" / "esbuild"


def bundle(docs, site, *options):
    """Writes each script with its modules. A page loads it as a plain script with names of its own, a worker as a module."""
    source = Path(docs, FOLDER)
    _esbuild(site, "--bundle", "--format=iife", *options, *sorted(source.glob("*.js")))
    _esbuild(site, "--bundle", "--format=esm", "--out-extension:.js=.mjs", *options, *sorted(source.glob("*.mjs")))


def pack(docs, site, names):
    """The same, minified, with the style sheets, and with the scripts of every page as one: `names` in docs."""
    bundle(docs, site, "--minify")
    _esbuild(site, "--minify", *sorted(Path(site, FOLDER).glob("*.css")))
    _python(Path(site, PYTHON))
    for name in names:
        Path(site, str(name)).unlink()
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder, JOINED)
        joined.write_text("\n".join(f"import {json.dumps(str(Path(docs, str(name)).resolve()))}" for name in names), encoding="utf-8")
        _esbuild(site, "--bundle", "--format=iife", "--minify", joined)


def _python(folder):
    """Minifies what starts Python in the browser, which saves 18 kB of what a reader fetches."""
    if scripts := sorted(folder.glob("*.mjs")):
        node.run(ESBUILD, "--minify", "--out-extension:.js=.mjs", *COMMON, f"--outdir={folder}", *scripts)


def _esbuild(site, *arguments):
    node.run(ESBUILD, *COMMON, f"--outdir={Path(site, FOLDER)}", *arguments)
