"""Owns how each program of this folder begins and ends: its words are paths, it says what is wrong, a line each, and exits 1 where
anything is. Knows none of them."""

import sys
from collections.abc import Callable
from pathlib import Path


class Broken(Exception):
    """What keeps something from being tried at all, or from being there."""


def judge(check: Callable[..., list[str]], usage: str, *counts: int) -> None:
    """Runs CHECK with the paths that were given, as many as one of COUNTS, and ends the program by what it found wrong."""
    words = [Path(word).resolve() for word in sys.argv[1:]]
    if len(words) not in counts:
        sys.exit(usage)
    wrong = check(*words)
    for what in wrong:
        print(what if what.startswith("ERROR") else f"ERROR: {what}")
    sys.exit(1 if wrong else 0)
