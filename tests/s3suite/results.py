"""Owns the short form of what a comparison found: for each S3 operation that a case asked for by name, whether every answer through the
gateway was the store's own, and why not. gateway/COMPATIBILITY.md is made of it.

    results.py DIRECT.jsonl THROUGH.jsonl    exit 1 if results.toml has other operations or verdicts; BLESS=1 writes it

Which of the reasons show in one run may depend on timing (cut connections), so they are not held against the file.

Requests that cases put together by hand carry no operation's name, and count in compare.py alone.
"""

import contextlib
import difflib
import io
import os
import re
import sys
import tomllib
from pathlib import Path

from compare import allowed, differences, load

HERE = Path(__file__).parent
HEAD = "# Written by results.py (BLESS=1): per operation, \"same\", or the reasons for which answers through the gateway differed.\n\n[operations]\n"


def operation(step: str) -> str | None:
    """`02 GetObject@r` → GetObject; other steps are raw requests and remarks."""
    found = re.fullmatch(r"\d+ ([A-Z][a-z][A-Za-z0-9]+)(@r)?", step)
    return found and found[1]


def results(direct: dict, through: dict) -> dict[str, list[str]]:
    listed = [entry for entry in allowed(HERE / "allowed_differences.toml") if not entry.stores or "rgw" in entry.stores]
    asked = {name for case in direct.keys() & through.keys() for step in through[case] if step in direct[case] and (name := operation(step))}
    found: dict[str, set[str]] = {name: set() for name in asked}
    # What was not asked has been told by compare.py.
    with contextlib.redirect_stdout(io.StringIO()):
        all_differences = list(differences(direct, through))
    for difference in all_differences:
        if (name := operation(difference.step)) in found:
            entry = next((entry for entry in listed if entry.covers(difference)), None)
            found[name].add(entry.reason if entry else f"not expected: {difference}")
    return {name: sorted(reasons) for name, reasons in sorted(found.items())}


def verdicts(operations: dict) -> list[str]:
    return [f"{name} {'same' if reasons in ('same', []) else 'differs'}" for name, reasons in sorted(operations.items())]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def written(found: dict[str, list[str]]) -> str:
    lines = (f"{name} = " + ('"same"' if not reasons else "[" + ", ".join(map(quoted, reasons)) + "]") for name, reasons in found.items())
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    found, path = results(load(sys.argv[1]), load(sys.argv[2])), HERE / "results.toml"
    if os.environ.get("BLESS") == "1":
        path.write_text(written(found), encoding="utf-8")
        return 0
    wrong = list(difflib.unified_diff(verdicts(tomllib.loads(path.read_text(encoding="utf-8"))["operations"]), verdicts(found),
                                      "results.toml", "this run", n=0, lineterm=""))
    for line in wrong:
        print(f"DIFFERS  {line}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
