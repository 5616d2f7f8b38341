"""A record of another machine than the one that executed the .ipynb: is it a record of this notebook?

Whether its values are true, no check can tell. A reviewer sees them beside those of other machines: `contributions.summary`.
"""

import json

from .problems import Problem, line_of, nearest, read_text


def problems(record, expected, source):
    """What a machine's record says of other things than the notebook does, as Problems.

    record: a Record; expected: {"claims": ..., "tables": ...} of the executed .ipynb; source: the text of the notebook. A large machine may
    have a claim, a table or a column more, where the code names it: a CPU did not run what needs a GPU.
    """
    for collection in ("claims", "tables"):
        ours, theirs, what = expected[collection], record.data[collection], collection[:-1]
        for name in theirs.keys() - ours.keys():
            if not _named(name, source):
                yield _problem(record, name, f"the notebook has no {what} {name}{nearest(name, ours)}")
        for name in ours.keys() - theirs.keys():
            yield _problem(record, collection, f"it lacks the {what} {name} of the notebook")
        for name in sorted(ours.keys() & theirs.keys()):
            for wrong in _differences(ours[name], theirs[name], source):
                yield _problem(record, name, f"{what} {name}: {wrong}")


def _differences(ours, theirs, source):
    if ours.get("unit") != theirs.get("unit"):
        yield f"its unit is {theirs['unit']!r}, and {ours['unit']!r} in the notebook"
    known, found = ours.get("columns", {}), theirs.get("columns", {})
    if more := [key for key in found if key not in known and not _named(key, source)]:
        yield f"the notebook has no column {more[0]}{nearest(more[0], known)}"
    elif less := known.keys() - found.keys():
        yield f"it lacks the column {sorted(less)[0]}"


def _named(name, source):
    return f'"{name}"' in source


def _problem(record, key, what):
    line = line_of(read_text(record.path), json.dumps(key))
    return Problem(record.path, what, f"run `make record NOTEBOOKS={record.notebook}` on {record.label}", line)
