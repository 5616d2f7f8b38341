"""What the tests of several pages ask of the programs that their pages show."""

import ast
import inspect

from transformers import TrainingArguments


def wrong_arguments(path):
    """Arguments that a program gives to TrainingArguments and that the installed version does not know, or is giving up."""
    known = {
        name
        for name in inspect.signature(TrainingArguments).parameters
        if not name.startswith("gradient_checkpointing")
    }
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return [
        f"{path.name}:{call.lineno}: {keyword.arg}"
        for call in calls
        if getattr(call.func, "id", "") == "TrainingArguments"
        for keyword in call.keywords
        if keyword.arg not in known
    ]


def too_much_to_read(path, most_lines, most_columns=120):
    """Where a program is longer or wider than a reader of a page takes in."""
    lines = path.read_text().splitlines()
    long = [f"{path.name}: {len(lines)} lines, of at most {most_lines}"] * (len(lines) > most_lines)
    wide = [
        f"{path.name}:{number}: {len(line)} columns" for number, line in enumerate(lines, 1) if len(line) > most_columns
    ]
    return long + wide
