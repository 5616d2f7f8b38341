"""The closing cell of every notebook, for who runs it by hand: the run beside the published records, and this machine's record
to send.

A record is offered where the notebook ran whole and unchanged, as the hash of the executed cells tells, and every claim holds.
It goes to the project by a link that opens a prefilled page of the repository: a new file where the record fits into an
address, else a form to drop the file into.
"""

import base64
import sys
from html import escape
from importlib import metadata
from pathlib import Path
from urllib.parse import urlencode

from . import claims, compare, freshness, measured_code, records
from .problems import Problem
from .runs import assembled
from .session import readers_session

HOME = Path(__file__).resolve().parent
CHECKOUT = HOME.parent / records.RESULTS
PUBLISHED = HOME / "published"  # the records as the installed package carries them
LONGEST_ADDRESS = 7000  # characters; GitHub refuses addresses of over 8 kB
CHANGED = (
    "its code is not that of the published notebook, or its cells did not run once each, from the first to the last"
)
NEXT = "Fix: Run all cells of an unchanged copy"


class Offer:
    """A record that can be sent: the name of its file, its text, and the address of the page that takes it."""

    def __init__(self, path, text, repository):
        self.name, self.text = f"{path.parent.name}.{path.name}", text
        self.address = _address(repository, path, text)


def finish():
    """Shows the run beside the published records and, where there is no checkout of the project, offers its record."""
    left = claims.left()
    opened = left.pop(("start", "start"), None)
    if not opened:
        print("Nothing to compare: no run is open. Fix: Run all cells")
        return
    checkout = CHECKOUT.is_dir()
    folder = CHECKOUT if checkout else PUBLISHED
    made = {f"{kind}s": {name: data for (of, name), data in left.items() if of == kind} for kind in ("claim", "table")}
    published = [records.load(path) for path in sorted((folder / opened["notebook"]).glob("*.json"))]
    code = executed_code()
    whole = code in {record.data["source"] for record in published}
    found = list(compare.rows(made, published, opened["machine"], compare.NOT_LEFT if whole and not hasattr(sys, "last_value") else "its cell has not run to its end"))
    said, button = _offered(checkout, opened, made, published, found, code if whole else "")
    text = f"{compare.as_text(found)}\n{said}"
    html = f"{compare.as_html(found)}<p>{escape(said)}</p>{button}"
    claims.display_or_print(text, html)


def _offered(checkout, opened, made, published, found, code):
    """(a sentence about this run's record, HTML with what downloads and sends it). code: its hash where it is the published one."""
    if checkout:
        return f"To keep what this machine measured: make record NOTEBOOKS={opened['notebook']}", ""
    if not compare.all_hold(found):
        return _told(opened, found)
    if not code:
        return f"No record is offered: {CHANGED}. {NEXT}", ""
    if not any(record.machine for record in published):
        return "No record is offered: what this notebook says is the same on every machine.", ""
    try:
        return _to_send(make_offer(opened, made, code))
    except Problem as problem:
        return f"No record is offered: {problem.what}.", ""


def _told(opened, found):
    """Where a figure does not hold there is no record, and the project wants to know: a link to a form that says it."""
    row = next(row for row in found if row.verdict in (compare.BROKEN, compare.MISSING))
    here = ", ".join(
        [opened["machine"]["label"], *(f"{name} {version}" for name, version in opened["software"].items())]
    )
    asked = {"template": "figure.yml", "title": f"Figure: {opened['notebook']}:{row.name}"}
    asked |= {"claim": f"{opened['notebook']}:{row.name}", "figure": f"{row.here}: {row.why}"[:300], "machine": here}
    address = f"{repository()}/issues/new?{urlencode(asked)}"
    said = f"No record is offered: {row.name} {row.verdict}. If you changed nothing, tell the project: {repository()}/issues"
    return said, f'<p><a href="{escape(address)}" target="_blank" rel="noopener">Tell the project</a></p>'


def make_offer(opened, made, code):
    """The Offer of this run's measured figures. Raises Problem where no record may hold them."""
    found = {"claim": made["claims"], "table": made["tables"]}
    part = next((part for part in assembled(opened["notebook"], opened, found, code) if "machine" in part), None)
    if not part:
        raise Problem("this run", "it measured nothing", "Run all cells")
    path, text = records.prepared(part)
    return Offer(path, text, repository())


def executed_code():
    """The hash of the cells that ran in this session, as a record carries it; "" outside of IPython."""
    session = readers_session()
    if not session:
        return ""
    sources = dict.fromkeys(source for source in session.history_manager.input_hist_raw if source.strip())
    try:
        return freshness.hash_of(source for source in sources if measured_code.makes_figures(source))
    except SyntaxError:
        return ""


def repository():
    """The project's address, as the installed package states it."""
    stated = metadata.metadata("performance-and-scalability").get_all("Project-URL") or []
    found = dict(line.split(", ", 1) for line in stated)
    return found["Repository"]


def _address(repository, path, text):
    """A page of the repository with the record filled in; a form where it is too long for an address."""
    new_file = f"{repository}/new/main?{urlencode({'filename': path.as_posix(), 'value': text})}"
    if len(new_file) <= LONGEST_ADDRESS:
        return new_file
    title = f"Record: {path.parent.name} on {path.stem}"
    asked = {"template": "record.yml", "title": title, "notebook": path.parent.name, "machine": path.stem}
    return f"{repository}/issues/new?{urlencode(asked)}"


def _to_send(offer):
    said = f"This run made a record, {offer.name}. Download it, and send it: {repository()}/issues/new?template=record.yml"
    send = f'<a href="{escape(offer.address)}" target="_blank" rel="noopener">Send it to the project</a>'
    return said, f"<p>{_download(offer)} · {send}</p>"


def _download(offer):
    """HTML that downloads the record: by Colab's own way there, else by a link that holds it."""
    if "google.colab" not in sys.modules:
        content = base64.b64encode(offer.text.encode()).decode()
        return (
            f'<a download="{escape(offer.name)}" href="data:application/json;base64,{content}">Download the record</a>'
        )
    from google.colab import files, output

    Path(offer.name).write_text(offer.text, encoding="utf-8")
    output.register_callback("evidence.download", lambda: files.download(offer.name))
    call = escape("google.colab.kernel.invokeFunction('evidence.download', [], {})")
    return f'<button onclick="{call}">Download the record</button>'
