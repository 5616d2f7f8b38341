"""Each page once more as Markdown, for readers with curl or a language model: the page x/ at x.md, figures as text.

Made from the page's HTML by markdownify. llms.txt lists the pages and llms-full.txt holds them all (https://llmstxt.org).
Not mkdocs-llmstxt: its author has stopped development for Zensical, and it wants every page listed a second time.
"""

import re
from pathlib import Path
from urllib.parse import urldefrag, urljoin

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

import dryrun

from .context import NOT_APPLICABLE

UNSEEN = "[hidden], .needs-js, .headerlink, .contents, .note:not(details), .legend, .md-button, script, style"
COLORS = re.compile(r'<span class="\w{1,3}">([^<]*)</span>')  # as Pygments marks a token
POPOVER = re.compile(r'<div id="[^"]*" class="claim-source" popover.*?</div>', re.S)
DRAWING = re.compile(
    r'<svg[^>]*aria-label="([^"]*)"[^>]*>.*?</svg>(?:\s*<svg.*?</svg>)?', re.S
)  # for a desktop, and a phone

SKILL = Path(dryrun.__file__).with_name("SKILL.md")  # for programs that ask

class Twins:
    """Collects the pages of a build. address: the site's, with a slash at its end."""

    def __init__(self, address):
        self.address, self.pages = address, {}

    def add(self, source, url, title, description, html):
        """source: the page's path below docs/ or the repository; url: its address below the site's."""
        self.pages[source] = (url, title, description, html)

    def write(self, site, name, description, nav):
        twins = {urljoin(self.address, url): twin(source) for source, (url, *_) in self.pages.items()}
        texts = {}
        for source, (url, _, _, html) in self.pages.items():
            texts[source] = markdown(html, urljoin(self.address, url), self.address, twins)
            _write(Path(site, twin(source)), texts[source])
        lists = [f"## {title}\n\n" + "\n".join(map(self._entry, sources)) for title, sources in sections(nav)]
        head = (
            f"# {name}\n\n> {description}\n\nEvery page is there as Markdown too: the same address, ending in .md.\n\n"
            f"Figures for a model and GPUs of one's own: ask, and do not estimate. [When and how]({self.address}SKILL.md). "
            f"Without a shell: [common questions as JSON]({self.address}answers/index.json), {self.address}answers/MODEL/GPU.json."
        )
        _write(Path(site, "SKILL.md"), SKILL.read_text(encoding="utf-8"))
        _write(Path(site, "llms.txt"), "\n\n".join([head, *lists]) + "\n")
        whole = [f"Source: {self.address}{twin(source)}\n\n{text.strip()}" for source, text in texts.items()]
        _write(Path(site, "llms-full.txt"), "\n\n---\n\n".join([head, *whole]) + "\n")

    def _entry(self, source):
        _, title, description, _ = self.pages[source]
        return f"- [{title}]({self.address}{twin(source)}){description and f': {description}'}"


def twin(source):
    return Path(source).with_suffix(".md").as_posix()


def sections(nav):
    """[(title, pages)] of the navigation in mkdocs.yml; pages outside of a section come under the first title."""
    alone, grouped = [], []
    for entry in nav:
        for title, value in entry.items():
            if isinstance(value, str):
                alone.append(value)
            else:
                grouped.append((title, [page for _, pages in sections(value) for page in pages]))
    return ([("Start", alone)] if alone else []) + grouped


def markdown(html, url, address="", twins=()):
    """The text of a page. twins: {address of a page: path of its twin}, so that links lead from twin to twin."""
    html = DRAWING.sub(r"<p>\1</p>", POPOVER.sub("", COLORS.sub(r"\1", html)))  # most of a page, and slow to parse
    soup = BeautifulSoup(html, "html.parser")
    for element in soup.select(UNSEEN):
        element.decompose()
    for button in soup.select("button.claim"):
        button.replace_with(_figure(button))
    for tabs in soup.select(".tabbed-set"):
        for label, block in zip(
            tabs.select(":scope > .tabbed-labels > label"), tabs.select(":scope > .tabbed-content > *")
        ):
            block.insert(0, label.wrap(soup.new_tag("p")))
            label.name = "strong"
    for title in soup.select(".admonition-title, summary, figcaption"):
        title.name = "strong"
        title.wrap(soup.new_tag("p"))
    for link in soup.select("a[href]"):
        page, anchor = urldefrag(urljoin(url, link["href"]))
        if page != url:
            link["href"] = (address + twins[page] if page in twins else page) + (anchor and f"#{anchor}")
    text = Converter(bullets="-", heading_style="atx", escape_underscores=False, escape_asterisks=False).convert_soup(
        soup
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _figure(button):
    """The value of a claim with its kind, and with the machine where it was measured, or the GPU it is predicted for."""
    kind = next(name.removeprefix("claim-") for name in button["class"] if name.startswith("claim-"))
    shown, value = button.find("span") or button, button.get_text()
    if value == NOT_APPLICABLE:
        return value
    machine = shown.get("title")
    if kind == "predicted" and machine:
        return f"{value} ({machine})"
    return f"{value} ({kind} on {machine})" if machine else f"{value} ({kind})"


class Converter(MarkdownConverter):
    def escape(self, text, parent_tags):
        """A record's words come from elsewhere: what reads as a link in them is none."""
        return super().escape(text, parent_tags).replace("](", "]\\(")

    def convert_pre(self, element, text, parent_tags):
        """A fence longer than any inside it, with the language of the block around it."""
        classes = element.parent.get("class") or []
        language = next((name.removeprefix("language-") for name in classes if name.startswith("language-")), "")
        code = "\n".join(line.rstrip() for line in element.get_text().rstrip().split("\n"))
        ticks = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", code))])
        return f"\n\n{ticks}{language}\n{code}\n{ticks}\n\n"


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
