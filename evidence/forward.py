"""`make zensical`: the same pages built by Zensical, which succeeds Material. Advisory: it says what carries over.

What MkDocs does by the hook (evidence/site.py) is a step before or after the build here: notebooks become Markdown pages
first, redirects and Markdown twins come last. Our theme stays behind, because it overrides templates of Material.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from . import redirects, twins

SETTINGS = re.compile(r"^(?:hooks:| *custom_dir:| *favicon:| *- mkdocs-jupyter:).*\n", re.M)


def build(say=print):
    """Returns whether Zensical builds every page, with its figures."""
    folder = Path(tempfile.mkdtemp(prefix="zensical-"))
    try:
        nav = prepare(folder)
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        say(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).strip()[-3000:])
        sources = [source for _, listed in twins.sections(nav) for source in listed]
        pages = {source: folder / "site" / redirects.address(source) / "index.html" for source in sources}
        missing = [source for source, page in pages.items() if not page.is_file()]
        figures = sum(
            page.read_text(encoding="utf-8").count('class="claim ') for page in pages.values() if page.is_file()
        )
        redirects.write(folder / "site", "")
        say(f"{len(pages) - len(missing)} of {len(pages)} pages, {figures} figures that open to their source")
        say(
            "Without Material's theme and the hook, and so without: our look, machine switch and search, and the security policy"
        )
        for source in missing:
            say(f"{source} was not built")
        return done.returncode == 0 and not missing and figures > 0
    finally:
        shutil.rmtree(folder)


def prepare(folder):
    """Lays out in a folder what Zensical builds; returns the navigation."""
    for name in ("docs", "snippets", "results"):
        shutil.copytree(name, folder / name)
    shutil.copy(redirects.FILE, folder)
    (folder / "docs" / "notebooks").mkdir()
    for path in sorted(Path("notebooks").glob("*.ipynb")):
        _, _, text = twins.notebook(".", path.as_posix())
        (folder / "docs" / "notebooks" / f"{path.stem}.md").write_text(text, encoding="utf-8")
    for page in (folder / "docs").rglob("*.md"):
        page.write_text(twins.TO_NOTEBOOK.sub(r"\1.md", page.read_text(encoding="utf-8")), encoding="utf-8")
    settings = SETTINGS.sub("", Path("mkdocs.yml").read_text(encoding="utf-8")).replace(".ipynb", ".md")
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    return yaml.safe_load(re.search(r"^nav:\n(?:[ #-].*\n|\n)+", settings, re.M)[0])["nav"]
