"""All that is tied to MkDocs, as one hook (mkdocs.yml: hooks): the address, the notebooks as pages, the records as files,
the security policy, the pages as Markdown.

A notebook page takes the same road as every other page: nbconvert runs our template (theme/notebook), which emits Markdown, and
MkDocs renders that. So a notebook looks, weighs and is checked like a guide. mkdocs-jupyter finds the .ipynb files and puts them beside
their pages for download; its own conversion gives HTML with styles and scripts of its own, so it is not used.
"""

import base64
import os
import re
import struct
import time
from pathlib import Path
from urllib.parse import urlsplit

from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File
from mkdocs.structure.pages import Page

from evidence import recipes
from evidence.notebooks import pins, placeholder, project
from evidence.records import RESULTS
from evidence.site import addresses, assets, notebook_pages, planner, redirects, search_index
from evidence.site.context import machines, predicted_for, stored
from evidence.site.llms_txt import COLORS, Twins

# What a page may load: files of the site.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'"
)
CELL = re.compile(r"</t[hd]>")
BEHIND = 0.3  # the weight in the search of a notebook, which stands behind its guide
RECIPE = 0.6  # and of one that readers come for
NOT_YET = (
    "*The public address of this repository is not set yet, so links to it lead nowhere, Colab cannot open a notebook, and an install "
    "line needs a copy of the repository. Download a notebook, or run it from your copy.*"
)

serving = False
begun = 0.0  # when the last build of this process began


def on_startup(*, command, dirty):
    """`mkdocs serve` puts a script into every page, which the policy would refuse."""
    global serving
    serving = command == "serve"


def on_nav(nav, *, config, files):
    """`mkdocs serve --dirty` builds only pages that were edited, in a second. A page also holds snippets, figures and the
    theme: when a snippet has changed, the pages that name it are built, and all when anything else has."""
    global begun
    before, begun = begun, time.time()
    if not serving:
        return
    snippets = Path(config.config_file_path).parent / "snippets"
    watched = [path for folder in config.watch for path in Path(folder).rglob("*") if path.is_file()]
    changed = [path for path in watched if path.stat().st_mtime > before]
    names = {path.relative_to(snippets).as_posix() if path.is_relative_to(snippets) else "" for path in changed}
    for file in files:
        text = file.content_string if file.src_uri.endswith(".md") else ""
        if any(name in text for name in names):  # "" is in every text
            file.is_modified = lambda: True


def on_config(config):
    """The repository's address stands in pyproject.toml alone; the site's follows from it unless SITE_URL says otherwise."""
    repository = project()["urls"]["Repository"]
    owner, name = urlsplit(repository).path.strip("/").split("/")[:2]
    config.repo_url, config.repo_name = repository, name
    # Nothing opens or edits a file at an address that is not there yet.
    known = not placeholder()
    config.edit_uri = "edit/main/docs/" if known else ""
    # `mkdocs serve` has set its own already
    if os.environ.get("SITE_URL") or not config.site_url:
        config.site_url = addresses.of_site()
    config.extra["colab"] = f"https://colab.research.google.com/github/{owner}/{name}/blob/main/notebooks/" if known else ""
    config.extra["release"] = project()["version"]
    config.extra["written_for"] = written_for()
    config.extra["machines"] = machines(stored(RESULTS)[0])
    config.extra["gpus"] = predicted_for(stored(RESULTS)[0])
    config.extra["machine_style"] = _style_of_choices(config.extra["machines"], "machine", "on") + _style_of_choices(
        config.extra["gpus"], "gpu", "for"
    )
    config.extra["twins"] = Twins(config.site_url or "")
    return config


def written_for():
    """The versions that the pages are about, as their head says them: "torch 2.13, transformers 5.23"."""
    asked = Path("requirements/test.in")  # torch is not in the lock
    torch = re.search(r"^torch==([\d.]+)", asked.read_text(encoding="utf-8"), re.M) if asked.is_file() else None
    versions = {"torch": torch[1]} | pins() if torch else pins()
    return ", ".join(f"{name} {'.'.join(version.split('.')[:2])}" for name, version in versions.items() if name in ("torch", "transformers"))


def _style_of_choices(names, choice, of):
    """Shows what the chosen machine or GPU has, and hides what only others have."""
    rule = "[data-{1}={0}] [data-{2}]:not([data-{2}~={0}]){{display:none}}[data-{1}={0}] [data-{2}~={0}]{{display:contents}}"
    return "".join(rule.format(f'"{name}"', choice, of) for name in names) if len(names) > 1 else ""


@event_priority(100)  # before mkdocs-jupyter looks at the files
def on_files(files, *, config):
    root = Path(config.config_file_path).parent
    for template in [file for file in files if file.src_uri.startswith("notebook/")]:  # MkDocs takes all of theme/
        files.remove(template)
    for path in sorted(root.glob("notebooks/**/*")):
        if path.suffix in (".ipynb", ".py"):
            files.append(File(path.relative_to(root).as_posix(), str(root), config.site_dir, config.use_directory_urls))
    for path in sorted(root.glob("results/*/*.json")):
        files.append(File(path.relative_to(root).as_posix(), str(root), config.site_dir, config.use_directory_urls))
    if files.get_file_from_path("your-model.md"):
        for name, content in planner.files():
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown, *, page, config, files):
    """Tells our Markdown extension which page it renders, so that it can make links. The list of notebooks says what they run on."""
    _tell_page(config, page.file.src_uri)
    if page.file.src_uri == "notebooks.md":
        markdown = notebook_pages.with_machines(markdown, stored(RESULTS)[0])
    if page.file.src_uri in ("notebooks.md", "contribute.md") and not config.extra["colab"]:
        markdown = re.sub(r"^# .*$", rf"\g<0>\n\n{NOT_YET}", markdown, count=1, flags=re.M)
    return markdown


def on_pre_page(page, *, config, files):
    if not page.file.src_uri.endswith(".ipynb"):
        return page
    stem = page.file.src_uri.removesuffix(".ipynb")
    page.edit_url = f"{config.repo_url}/edit/main/{stem}.py" if config.edit_uri else None
    figures = []

    def figure(data, suffix):
        """Stores a figure beside the page; returns its link and, so that the page does not jump when it loads, its size."""
        content = data.encode() if suffix == "svg" else base64.b64decode(data)
        if content not in figures:
            figures.append(content)
            files.append(File.generated(config, f"{stem}_files/{len(figures)}.{suffix}", content=content))
        width, height = _size(content, suffix)
        number = figures.index(content) + 1
        return f"({Path(stem).name}_files/{number}.{suffix}){{ width={width} height={height} loading=lazy .nb-figure }}"

    def render(config, files):
        figures.clear()
        text = notebook_pages.markdown(page.file.abs_src_path, figure, stored(RESULTS)[0].get(Path(stem).name, ()))
        text = recipes.with_pages(text)
        page.markdown = re.sub(r"^# .*$", rf"\g<0>\n\n{_ways_in(config, stem)}", text, count=1, flags=re.M)
        page.meta["search"] = {"boost": RECIPE if "/recipes/" in stem else BEHIND}
        page.meta["description"] = notebook_pages.summary(text) or config.site_description
        _tell_page(config, page.file.src_uri)
        Page.render(page, config, files)

    page.render = render  # in place of mkdocs-jupyter's, which converts each notebook a second time for its contents
    return page


def on_page_content(html, *, page, config, files):
    title, description = page.title, page.meta.get("description", "")
    config.extra["twins"].add(page.file.src_uri, page.url, title, description, html)


@event_priority(100)  # before the search reads the page
def _hide_colors(context, *, page, config, nav):
    """The colors of code are two thirds of a page's tags, and the search reads words: parsing them costs a second a build.
    It drops the tags of cells, and words of neighbors must not become one."""
    page.colored, page.content = page.content, CELL.sub(r"\g<0> ", COLORS.sub(r"\1", page.content))


@event_priority(-100)
def _show_colors(context, *, page, config, nav):
    page.content = page.colored
    return on_template_context(context, template_name="main.html", config=config)


on_page_context = CombinedEvent(_hide_colors, _show_colors)


def on_env(env, *, config, files):
    """The styles that mkdocstrings adds to every page are for parts that docs/dryrun.md does not show."""
    config.extra_css = [path for path in config.extra_css if "_mkdocstrings" not in str(path)]
    return env


def on_post_page(output, *, page, config):
    """The indentation of Material's templates round a page's text would be a kilobyte of it, packed."""
    before, article, rest = output.partition("<article")
    text, end, after = rest.rpartition("</article>")
    before, after = (re.sub(r"\s*\n\s*", "\n", part) for part in (before, after))
    return before + article + text + end + after


def on_template_context(context, *, template_name, config):
    context["serving"] = serving
    context["policy"] = "" if serving else POLICY
    return context


def on_post_build(*, config):
    for path in Path(config.site_dir, "assets").rglob("*.map"):
        path.unlink()  # Material's source maps are more than all the rest of the site, and no reader asks for them
    style = Path(config.site_dir, "assets", "site.css")
    if not (text := style.read_text(encoding="utf-8")).endswith(config.extra["machine_style"]):
        style.write_text(text + config.extra["machine_style"], encoding="utf-8")
    redirects.write(config.site_dir, config.site_url)
    search_index.slim(Path(config.site_dir, "search", "search_index.json"))
    if serving:  # an edit must show at once
        assets.bundle(config.docs_dir, config.site_dir)
    else:
        assets.pack(config.docs_dir, config.site_dir, config.extra_javascript)
        config.extra["twins"].write(config.site_dir, config.site_name, config.site_description, config.nav)


def _tell_page(config, source):
    options = config.mdx_configs.setdefault("evidence.site.pages", {})
    options.update(page=source, colab=config.extra["colab"], repository=config.repo_url)


def _ways_in(config, stem):
    """The line under a notebook's title. mkdocs-jupyter puts the notebook into the page's folder, MkDocs the script beside it."""
    name, colab = Path(stem).name, config.extra["colab"]
    opens = f"[Open in Colab]({colab}{stem.removeprefix('notebooks/')}.ipynb){{ .md-button .md-button--primary }} " if colab else ""
    return (
        f'{opens}<a class="md-button" href="{name}.ipynb" download>Download the notebook</a> '
        f'<a class="md-button" href="../{name}.py" download>Download the script</a>'
    )


def _size(content, suffix):
    """Width and height of a figure in pixels."""
    if suffix == "png":
        return struct.unpack(">II", content[16:24])
    width, height = re.findall(rb' (?:width|height)="([\d.]+)pt"', content[content.index(b"<svg") :])[:2]
    return round(float(width) * 4 / 3), round(float(height) * 4 / 3)
