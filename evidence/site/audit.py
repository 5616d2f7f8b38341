"""`make audit`: what a reader gets, page by page, and whether it holds the bars: weight, hosts, accessibility.

Chromium counts what a first visit fetches, axe-core and Lighthouse judge the page. Performance is reported and no gate,
because it depends on the machine. The site is built for this, from the working directory, in processes of their own.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ..problems import Problem
from .browser import LOOKS, Host, Visit, chromium, executable, violations

KILOBYTE = 1000
# gzipped, a first visit; a notebook's less its figures; the search's when it opens; the planner's with Python for the browser
OVERVIEW, GUIDE, NOTEBOOK, LEDGER, SEARCH, PLANNER = (size * KILOBYTE for size in (52, 95, 72, 84, 200, 13_000))
GATES = {"accessibility": "a11y", "best-practices": "best", "seo": "SEO"}  # which must be 100
LIGHTHOUSE = Path(".venv/lighthouse/node_modules/lighthouse/cli/index.js")


def bar(page):
    """The most bytes that a first visit of a page may fetch."""
    if page.startswith("notebooks/"):
        return NOTEBOOK
    return {"": OVERVIEW, "evidence/ledger/": LEDGER, "your-model/": PLANNER}.get(page, GUIDE)


def audit(runs, only, say):
    """Prints the table; returns what broke a bar."""
    folder = Path(tempfile.mkdtemp(prefix="audit-"))
    try:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        build(folder / "site", SITE_URL=f"http://127.0.0.1:{port}/below/a/path/")
        with Host(folder / "site", port=port) as host, chromium() as browser:
            return list(pages(browser, host, runs, only, say))
    finally:
        shutil.rmtree(folder)


def pages(browser, host, runs, only, say):
    """One line for each page; yields what is wrong with it."""
    heads = [*GATES.values(), "perf"]
    say(f"{'page':34}{'kB':>7}{'of':>5} {'hosts':>6} {'axe':>4}" + "".join(f"{head:>6}" for head in heads if runs))
    for page in host.pages:
        if only and page.strip("/") not in only:
            continue
        name, visit, most = page or "overview", Visit(browser, host, page), bar(page)
        found = [f"{size} {scheme}: {problem}" for size, scheme, problem in looks(browser, host, page)]
        scores = lighthouse(host.address + page, runs) if runs else {}
        say(
            f"{name:34}{visit.weight / KILOBYTE:7.1f}{most / KILOBYTE:5.0f} {len(visit.hosts):6} {len(found):4}"
            + "".join(f"{score:6.0f}" for score in scores.values())
        )
        if visit.weight > most:
            yield f"{name}: a first visit fetches {visit.weight:,} bytes of at most {most:,}: {visit.fetched}"
        if visit.hosts or visit.messages:
            yield f"{name}: asks {sorted(visit.hosts)}, console: {visit.messages}"
        yield from (f"{name}, {problem}" for problem in found)
        yield from (
            f"{name}: Lighthouse gives {scores[key]:.0f} for {key}" for key in GATES if scores.get(key, 100) < 100
        )


def looks(browser, host, page):
    """(size, colors, problem) of all that axe finds, on a phone and a desktop, in light and dark."""
    for size, viewport, scheme in LOOKS:
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        tab = context.new_page()
        tab.goto(host.address + page)
        yield from ((size, scheme, problem) for problem in violations(tab))
        context.close()


def lighthouse(address, runs):
    """{category: score of 100} as Lighthouse sees a phone. All categories once, performance as the median of all runs."""
    if not LIGHTHOUSE.exists():
        raise Problem(
            LIGHTHOUSE,
            "Lighthouse is not installed",
            "make audit (it needs node and npm), or LIGHTHOUSE_RUNS=0 make audit",
        )
    scores, performance = {}, []
    for run in range(runs):
        asked = ",".join([*GATES, "performance"] if run == 0 else ["performance"])
        flags = "--chrome-flags=--headless=new --no-sandbox --disable-gpu"
        command = ["node", LIGHTHOUSE, address, "--quiet", "--output=json", f"--only-categories={asked}", flags]
        for _ in range(2):  # on a busy machine a browser may not answer in time
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"CHROME_PATH": executable()})
            if done.returncode == 0:
                break
        else:
            raise RuntimeError(f"Lighthouse failed on {address}\n{done.stderr[-2000:]}")
        found = {name: 100 * entry["score"] for name, entry in json.loads(done.stdout)["categories"].items()}
        performance.append(found.pop("performance"))
        scores |= found
    return {key: scores[key] for key in GATES} | {"performance": statistics.median(performance)}


def build(folder, **environment):
    """Builds the site in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "SITE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(Path(folder).resolve())],
        env=kept | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.getcwd()} | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"mkdocs build --strict failed\n{done.stdout}{done.stderr}")
