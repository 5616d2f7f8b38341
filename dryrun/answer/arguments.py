"""How a command says what is wrong with its options."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from ..tables.refusal import Refusal


class Parser(argparse.ArgumentParser):
    """Refuses in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        caught, where = sys.exc_info()[1], f" (all options: {self.prog} --help)"
        if isinstance(caught, argparse.ArgumentError) and caught.argument_name and "-" in caught.argument_name:
            field = caught.argument_name.partition("/")[0].lstrip("-")
            raise Refusal(field, caught.argument_name, caught.message, where, code="option") from None
        raise Refusal("", None, f"{message}{where}") from None
