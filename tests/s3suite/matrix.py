#!/usr/bin/env python3
"""Owns the table of clients in docs/clients.md: made of what a run has shown (S3_MATRIX of clients/proof.py), never by hand.

    matrix.py DOCUMENT ROWS    fails where the table says otherwise than the run; BLESS=1 writes it

A client that the run left out (said as NOT PROVEN) keeps its line. Timings have no place here.
"""

import json
import os
import sys
from pathlib import Path

COLUMNS = ["put", "get", "list", "multipart", "cold", "hot"]
BEGIN, END = "<!-- clients: made by tests/s3suite/matrix.py -->", "<!-- clients end -->"


def rows(path: str) -> dict[str, dict]:
    found: dict[str, dict] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if before := found.get(row["client"]):
            row["shown"] = [column for column in COLUMNS if column in before["shown"] + row["shown"]]
        found[row["client"]] = row
    return found


def line(row: dict) -> str:
    cells = ["yes" if column in row["shown"] else "–" for column in COLUMNS]
    return f"| {row['client']} | {row['version']} | {row['job']} | {' | '.join(cells)} |"


def block(lines: dict[str, str]) -> str:
    head = [f"| client | version | its job | {' | '.join(COLUMNS)} |", "|---" * (3 + len(COLUMNS)) + "|"]
    return "\n".join([BEGIN, *head, *(lines[name] for name in sorted(lines, key=str.lower)), END])


def main() -> int:
    document, found = Path(sys.argv[1]), rows(sys.argv[2])
    text = document.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    lines = {cell.split("|")[1].strip(): cell for cell in old.strip().splitlines()[2:]}
    left_out = sorted(lines.keys() - found.keys())
    made = block(lines | {name: line(row) for name, row in found.items()})
    if left_out:
        print(f"matrix: this run says nothing about {', '.join(left_out)}")
    if text == before + made + after:
        print(f"matrix: {document.name} agrees with what was shown of {len(found)} clients")
        return 0
    if os.environ.get("BLESS") == "1":
        document.write_text(before + made + after, encoding="utf-8")
        return 0
    for name, row in found.items():
        if lines.get(name) != line(row):
            print(f"FAILED matrix: {document.name} says '{lines.get(name)}', the run has shown '{line(row)}'; BLESS=1 writes it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
