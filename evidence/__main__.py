"""Command line: check, pair, addresses, exact, recipes, record, verify, add, summary, answers, port, audit. `make` calls it; `python -m evidence --help` lists it."""

import argparse
import json
import socket
import sys
from pathlib import Path

from .problems import Problem, nearest

try:
    # All that `record` needs: its python may lack what pages need.
    from . import cited, compare, contributions, notebooks, pairs, recipes, records, runs
except ModuleNotFoundError as error:
    fix = f"{sys.executable} -m pip install '.[examples]'"
    sys.exit(str(Problem("evidence", f"this python ({sys.executable}) lacks {error.name}", fix)))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m evidence", description="Figures from runs to pages.")
    commands = parser.add_subparsers(dest="command", required=True)

    def called(name, run, text):
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        return command

    called("check", check, "pages, records, pairs: everything that needs no execution")
    command = called("recipes", execute_recipes, "execute recipe notebooks without GPU and network; write their .ipynb")
    command.add_argument("recipes", nargs="*", help="names; all by default")
    called("pair", pair, "take edits of prose, comments and install cells over into the .ipynb files")
    called("addresses", add_addresses, "add new pages and sections to the list of addresses that stay")
    for name, run, text in (
        ("exact", exact, "execute what measures nothing; write .ipynb and exact.json"),
        ("record", record, "execute notebooks with this python; write .ipynb and record"),
        ("verify", verify, "execute notebooks and say of each figure whether it holds here; write nothing"),
    ):
        command = called(name, run, text)
        command.add_argument("notebooks", nargs="*", help="names; all by default")
    command.add_argument(
        "--json", action="store_true", help="the tables as JSON on stdout; what is said meanwhile, on stderr"
    )
    command = called("add", add, "check records that somebody sent, and put them into results/")
    command.add_argument("files", nargs="+", type=Path, help="records")
    command = called("summary", summary, "as Markdown: the records that differ from a commit, and the pages they change")
    command.add_argument("commit", help="such as origin/main")
    command = called("answers", write_answers, "dryrun's answers as JSON by address, into a built site (a minute)")
    command.add_argument("site", type=Path, help="the folder of the site")
    called("port", port, "whether a port of this machine is free").add_argument("number", type=int)
    command = called("audit", audit, "the built site in a browser, page by page: weight, hosts, axe, Lighthouse")
    command.add_argument("pages", nargs="*", help="addresses below the site, as training/one-gpu; all by default")
    command.add_argument("--runs", type=int, default=5, help="of Lighthouse for each page; 0 leaves it out")
    asked = parser.parse_args(arguments)
    try:
        return asked.run(asked)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1


def check(asked):
    from . import notebook_lint
    from .site import addresses, best_bets, lint, redirects

    problems = [*lint.check(), *lint.check_repository(), *redirects.check(), *best_bets.check(), *addresses.check(), *notebooks.strays()]
    for name in notebooks.names():
        problems += [*pairs.check(name), *notebook_lint.check(name)]
        problems += lint.check_notebook_prose(Path("notebooks", f"{name}.py"), notebooks.read_source(name))
    problems += [problem for name in recipes.names() for problem in recipes.check(name)]
    for problem in problems:
        print(problem, file=sys.stderr)
    for warning in (warning for name in notebooks.names() for warning in pairs.stale(name)):
        print(f"Warning: {warning}")
    found = cited.with_cited(records.load_all())
    claims = {(notebook, name) for notebook, kept in found.items() for record in kept for name in record.data["claims"]}
    print(
        f"{len(claims)} claims in {len(found)} notebooks, {sum(map(len, found.values()))} records: "
        f"{len(problems) or 'no'} problem{'s' * (len(problems) != 1)}"
    )
    if note := notebooks.placeholder():
        print(note)
    return bool(problems)


def pair(asked):
    notebooks.refresh_install_cells()
    notebooks.refresh_closing_cells()
    for name in notebooks.names():
        if not notebooks.pair(name):
            _say(f"{name}: its code has changed; `make exact NOTEBOOKS={name}`, or `make record` where that measures")
    for name in recipes.names():
        if not recipes.pair(name):
            _say(f"{name}: its code has changed; `make recipes RECIPES={name}`")


def add_addresses(asked):
    from .site import addresses

    for address in addresses.add():
        print(f"added {address}")


def record(asked):
    return _each(runs.record, asked)


def exact(asked):
    return _each(runs.exact, asked)


def execute_recipes(asked):
    for name in _named(asked.recipes, recipes.names(), recipes.FOLDER, "recipe"):
        recipes.execute(name, _say)


def verify(asked):
    tables = {}

    def verified(name, say):
        tables[name] = runs.verify(name, say=say)
        if not asked.json:
            say(f"{name}\n{compare.as_text(tables[name])}\n")

    say = _tell if asked.json else _say
    failed = _each(verified, asked, say)
    found = [row for rows in tables.values() for row in rows]
    if asked.json:
        _say(json.dumps({name: compare.as_data(rows) for name, rows in tables.items()}, indent=1, ensure_ascii=False))
    say(f"{len(tables)} notebook{'s' * (len(tables) != 1)}: {compare.counted(found)}")
    return failed or not compare.all_hold(found)


def add(asked):
    """Checks records from elsewhere and adds them. One that is refused does not keep the others out."""
    failed = False
    for path in asked.files:
        try:
            _say(f"added {contributions.add(path).as_posix()}")
        except Problem as problem:
            failed = True
            print(problem, file=sys.stderr, flush=True)
    return failed


def summary(asked):
    _say(contributions.summary(asked.commit))


def write_answers(asked):
    from .site import answers

    answers.write(asked.site, say=_say)


def _each(run, asked, say=None):
    """Runs every notebook asked for. One that fails is named, and does not cost the hours of the others."""
    failed, say = [], say or _say
    for name in list(_runnable(asked)):
        try:
            run(name, say=say)
        except Problem as problem:
            failed.append(problem)
            print(problem, file=sys.stderr, flush=True)
    if failed:
        print("\n".join(["Failed:", *map(str, failed)]), file=sys.stderr)
    return bool(failed)


def audit(asked):
    from .site.audit import audit as audited  # it needs a browser, which nothing else here does

    broken = audited(asked.runs, [page.strip("/") for page in asked.pages], _say)
    for problem in broken:
        print(problem, file=sys.stderr)
    return bool(broken)


def port(asked):
    if not 1 <= asked.number <= 65535:
        raise Problem("Makefile", f"{asked.number} is no port", "choose one from 1024 to 65535: PORT=8000 make serve")
    numbers = range(asked.number, min(asked.number + 100, 65536))
    free = next((number for number in numbers if _is_free(number)), None)
    if free is None:
        fix = "end what listens there, or choose another with PORT=..."
        raise Problem("Makefile", f"ports {numbers[0]} to {numbers[-1]} are in use", fix)
    if free != asked.number:
        raise Problem("Makefile", f"port {asked.number} is in use", f"PORT={free} make serve")


def _is_free(number):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
        except PermissionError:
            raise Problem("Makefile", f"port {number} is reserved", "choose one from 1024 to 65535") from None
        except OSError:
            return False
    return True


def _runnable(asked):
    """The notebooks asked for. Where all are, those whose own packages this machine lacks are left out, and it says so."""
    for name in _named(asked.notebooks, notebooks.names(), notebooks.FOLDER, "notebook"):
        try:
            notebooks.own_packages(name)
        except Problem as problem:
            if asked.notebooks:
                raise
            _say(f"left out: {problem}")
        else:
            yield name


def _named(asked, known, folder, what):
    """The names asked for, each of which must be known; all where none is."""
    for name in asked:
        if name not in known:
            raise Problem(folder / f"{name}.py", f"there is no {what} {name}{nearest(name, known)}", f"take one of {', '.join(known)}")
    return asked or known


def _say(text):
    print(text, flush=True)


def _tell(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
