"""How a command says what is wrong with its options."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (all options: {self.prog} --help)", file=sys.stderr)
        sys.exit(2)
