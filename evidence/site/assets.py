"""Our scripts as one file, and they and our style sheet without comments and blanks."""

from pathlib import Path

import rcssmin
import rjsmin

JOINED = "assets/site.js"  # what extra_javascript of mkdocs.yml lists, as one file
MINIFIERS = {".js": rjsmin.jsmin, ".css": rcssmin.cssmin}


def join_scripts(site, names):
    """Writes the scripts of every page as one. Each is a block of its own, so none sees the names of another."""
    folder = Path(site)
    texts = [Path(folder, str(name)).read_text(encoding="utf-8") for name in names]
    Path(folder, JOINED).write_text("\n".join(texts), encoding="utf-8")


def pack(site):
    """Takes comments and blanks out of our scripts and style sheet."""
    for path in Path(site, "assets").iterdir():
        if minify := MINIFIERS.get(path.suffix):
            path.write_text(minify(path.read_text(encoding="utf-8")), encoding="utf-8")
