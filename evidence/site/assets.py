"""Our scripts as one file, and they and our style sheet minified by esbuild."""

from pathlib import Path

from . import node

JOINED = "assets/site.js"  # what extra_javascript of mkdocs.yml lists, as one file
ESBUILD = node.MODULES / "esbuild" / "bin" / "esbuild"


def join_scripts(site, names):
    """Writes the scripts of every page as one. Each is a block of its own, so none sees the names of another."""
    folder = Path(site)
    texts = [Path(folder, str(name)).read_text(encoding="utf-8") for name in names]
    Path(folder, JOINED).write_text("\n".join(texts), encoding="utf-8")


def pack(site):
    """Minifies our scripts and style sheets."""
    folder = Path(site, "assets")
    ours = [path for suffix in ("js", "css") for path in sorted(folder.glob(f"*.{suffix}"))]
    node.run(ESBUILD, "--minify", "--charset=utf8", "--log-level=error", "--allow-overwrite", f"--outdir={folder}", *ours)
