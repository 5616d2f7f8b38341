"""Why there is no answer: data for programs, and the only place that puts it into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Code = Literal["", "unknown", "unlisted", "option", "positions", "nodes", "unpredicted", "one-reader", "untraced"]


class Refusal(ValueError):
    """A question that has no answer. `str` of it is a line of English.

    - `field`: what is wrong, by its name in Python ("length"); of the command's code "option", by the option's name without dashes;
      "" where it is of no one field
    - `given`: its value
    - `problem`: what is wrong with the value; `fix`: what to give instead, in words, or ""
    - `nearest`: values that would do, the nearest first
    - `code`: the kind of refusal: "" for a value that makes no sense here. "unknown": no such GPU or model; "unlisted": another name
      that is not one of a list; "option": an option of the command; "positions": more tokens than the model has; "nodes": no whole
      number of nodes; "unpredicted": nobody published times of this GPU; "one-reader": nor of this but of text for one reader;
      "untraced": torch would be needed
    """

    def __init__(
        self, field: str, given: Any, problem: str, fix: str = "", *, nearest: Sequence[Any] = (), code: Code = "",
    ) -> None:  # fmt: skip
        self.field, self.given, self.problem, self.fix, self.nearest, self.code = field, given, problem, fix, tuple(nearest), code
        super().__init__(_in_words(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.data())

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        names = ("code", "field", "given", "problem", "fix")
        return {name: getattr(self, name) for name in names} | {"nearest": list(self.nearest)}


def _again(kind: type[Refusal], data: dict[str, Any]) -> Refusal:
    return kind(**data)


def _in_words(refusal: Refusal) -> str:
    field, given, problem, fix, near = refusal.field, refusal.given, refusal.problem, refusal.fix, refusal.nearest
    if refusal.code == "unknown" and field == "model":
        meant = f"did you mean {', '.join(near)}? " if near else ""
        return f"model {given!r} {problem}: {meant}{fix}"
    if refusal.code == "unknown":
        meant = f": did you mean {' or '.join(near)}?" if near else "."
        return f"{field}={given!r} {problem}{meant} {fix}"
    if refusal.code == "unlisted":
        meant = f", did you mean {near[0]!r}?" if near else "."
        return f"{field}={given!r} {problem}{meant} {fix}"
    if refusal.code == "option":
        return f"argument {given}: {problem}{fix}"
    if refusal.code in ("unpredicted", "one-reader"):
        return f"{field}={given!r}: {problem}. {fix}"
    if refusal.code == "untraced":
        return f"{given}: {problem}: {fix}"
    return ": ".join([*([f"{field}={given!r}"] if field else []), problem, *([fix] if fix else [])])
