"""All that is tied to MkDocs, as one hook (mkdocs.yml: hooks): the address, the notebooks as pages, the records as files.

A notebook page takes the same road as every other page: mkdocs-jupyter runs our template (theme/notebook), which emits
Markdown, and MkDocs renders that. So a notebook looks, weighs and is checked like a guide.
"""

import base64
import html
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from mkdocs.structure.pages import Page
from mkdocs_jupyter.config import settings
from nbconvert.exporters.templateexporter import default_filters

from evidence.notebooks import project

settings.templates_dir = str(Path(__file__).resolve().parent.parent / "theme" / "notebook")


def on_config(config):
    """The repository's address stands in pyproject.toml alone; the site's follows from it unless SITE_URL says otherwise."""
    repository = project()["urls"]["Repository"]
    owner, name = urlsplit(repository).path.strip("/").split("/")[:2]
    config.repo_url, config.repo_name, config.edit_uri = repository, f"{owner}/{name}", "edit/main/docs/"
    config.site_url = os.environ.get("SITE_URL", f"https://{owner}.github.io/{name}/")
    if config.site_url and not config.site_url.endswith("/"):
        config.site_url += "/"
    config.extra["colab"] = f"https://colab.research.google.com/github/{owner}/{name}/blob/main/notebooks/"
    return config


@event_priority(100)  # before mkdocs-jupyter looks at the files
def on_files(files, *, config):
    root = Path(config.config_file_path).parent
    for path in sorted(root.glob("notebooks/*")):
        if path.suffix in (".ipynb", ".py"):
            files.append(File(f"notebooks/{path.name}", str(root), config.site_dir, config.use_directory_urls))
    for path in sorted(root.glob("results/*/*.json")):
        files.append(File(path.relative_to(root).as_posix(), str(root), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown, *, page, config, files):
    """Tells our Markdown extension which page it renders, so that it can make links."""
    _tell_page(config, page.file.src_uri)
    return markdown


def on_pre_page(page, *, config, files):
    if not page.file.src_uri.endswith(".ipynb"):
        return page
    convert = page.render  # put there by mkdocs-jupyter
    stem = page.file.src_uri.removesuffix(".ipynb")
    page.edit_url = f"{config.repo_url}/edit/main/{stem}.py"
    figures = []

    def figure(data, suffix):
        """Stores a figure beside the page; returns its link."""
        content = data.encode() if suffix == "svg" else base64.b64decode(data)
        figures.append(content)
        name = f"{stem}_files/{len(figures)}.{suffix}"
        files.append(File.generated(config, name, content=content))
        return f"{Path(stem).name}_files/{len(figures)}.{suffix}"

    def render(config, files):
        figures.clear()
        default_filters["figure"] = figure
        convert(config, files)
        text = html.unescape(page.content.partition("<style>")[0])  # mkdocs-jupyter appends a style sheet
        page.markdown = re.sub(r"^# .*$", rf"\g<0>\n\n{_ways_in(config, Path(stem).name)}", text, count=1, flags=re.M)
        _tell_page(config, page.file.src_uri)
        Page.render(page, config, files)

    page.render = render
    return page


def _tell_page(config, source):
    config.mdx_configs.setdefault("evidence.pages", {})["page"] = source


def _ways_in(config, name):
    """The line under a notebook's title. The two files lie beside the page's folder."""
    return (
        f"[Open in Colab]({config.extra['colab']}{name}.ipynb){{ .md-button .md-button--primary }} "
        f'<a class="md-button" href="../{name}.ipynb" download>Download the notebook</a> '
        f'<a class="md-button" href="../{name}.py" download>Download the script</a>'
    )


def _fence(text, language="text"):
    """A code block whose fence is longer than any fence inside it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    ticks = "`" * max([3] + [len(run) + 1 for run in re.findall(r"`{3,}", text)])
    return f"{ticks}{language}\n{text}\n{ticks}"


def _numbers_right(table):
    return re.sub(r"<td>(-?[\d.,]+)</td>", r"<td class=number>\1</td>", table)


def _refuse(error):
    raise ValueError(f"the stored output is an error: {error}")


default_filters.update(fence=_fence, numbers_right=_numbers_right, refuse=_refuse)
