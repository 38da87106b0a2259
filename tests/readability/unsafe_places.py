#!/usr/bin/env python3
"""Holds the tree against `unsafe_places.toml`, the list of files that may have `unsafe`.

    tests/readability/unsafe_places.py        one line for each place that is wrong; exits 1 if there is one

Wrong are a file with `unsafe` that is not listed, a listed file without, and a crate that has no listed file and does not
forbid `unsafe` in its root. Tests count as well. Whether each place is sound is for its `SAFETY` comment, which clippy demands.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from rust_source import without_comments_and_strings

ROOT = Path(__file__).resolve().parents[2]
LIST = Path("tests/readability/unsafe_places.toml")
FORBIDS = re.compile(r"^#!\[forbid\([^)]*\bunsafe_code\b", re.MULTILINE)


def lines_with_unsafe(text):
    code = without_comments_and_strings(text)
    return [code.count("\n", 0, match.start()) + 1 for match in re.finditer(r"\bunsafe\b", code)]


def wrong_files(sources, listed):
    for path in sorted(sources):
        lines = lines_with_unsafe(sources[path])
        if lines and path not in listed:
            yield f"{path}:{lines[0]}: `unsafe` in a file that {LIST} does not list"
        if not lines and path in listed:
            yield f"{LIST}: {path} has no `unsafe` any more"
    for path in sorted(set(listed) - set(sources)):
        yield f"{LIST}: there is no {path}"
    for path, reason in listed.items():
        if not reason.strip():
            yield f"{LIST}: {path} has no reason"


def wrong_crates(sources, listed):
    for path in sorted(sources):
        crate, _, root = path.rpartition("/src/")
        if root not in ("lib.rs", "main.rs") or any(place.startswith(f"{crate}/src/") for place in listed):
            continue
        if not FORBIDS.search(sources[path]):
            yield f"{path}:1: no `#![forbid(unsafe_code)]`, and no file of the crate is in {LIST}"


def main():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]
    paths = subprocess.check_output(command, cwd=ROOT, text=True).split("\n")
    sources = {path: (ROOT / path).read_text() for path in paths if path and (ROOT / path).is_file()}
    listed = tomllib.loads((ROOT / LIST).read_text())
    wrong = [*wrong_files(sources, listed), *wrong_crates(sources, listed)]
    print("\n".join([*wrong, f"{len(listed)} files may have `unsafe`, {len(wrong)} wrong"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
