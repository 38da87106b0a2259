#!/usr/bin/env python3
"""Holds the settings against the code: whatever a user may write, something obeys.

    tests/readability/check_settings.py     one line for each setting that nothing reads; exits 1 if there is one

A setting is a field of a struct with `#[derive(… SettingsTable …)]`. It is read where the product's code names it outside
its declaration and outside config/src/check, which only judges: as `.field`, or where its struct is taken apart.
"""

import re
import sys
from pathlib import Path

from measure import Tree

ROOT = Path(__file__).resolve().parents[2]
DECLARED = re.compile(r"derive\([^)]*\bSettingsTable\b[^)]*\)\]\s*(?:#\[[^\]]*\]\s*)*pub struct (\w+) \{(.*?)\n\}", re.DOTALL)
FIELD = re.compile(r"^\s*pub (\w+):", re.MULTILINE)
# What holds a table as a whole is read by its parts.
TABLE = re.compile(r"#\[setting\((?:table|list)\)\]\s*pub (\w+):")

# They say what the user promises; the checks are all that obeys them.
ONLY_JUDGED = {("ClusterSettings", "workers_fixed"), ("UfsSettings", "namespace")}


def main() -> int:
    tree = Tree(ROOT)
    declared, rest = [], []
    for source in tree.sources:
        code = source.code
        for match in DECLARED.finditer(code):
            tables = set(TABLE.findall(match[2]))
            declared += [(source, match[1], name) for name in FIELD.findall(match[2]) if name not in tables]
        if not str(source.path).startswith("config/src/check"):
            rest.append(DECLARED.sub("", code))
    text = "\n".join(rest)
    taken_apart = " ".join(
        match[1] for match in re.finditer(r"\b\w+Settings \{([^{}]*)\}\s*=", text)
    )
    unread = [
        (source, table, name) for source, table, name in declared
        if (table, name) not in ONLY_JUDGED
        and not re.search(rf"\.{name}\b(?!\()", text) and not re.search(rf"\b{name}\b(?!: _)", taken_apart)
    ]
    for source, table, name in unread:
        print(f"{source.path}: {table}.{name} is a setting that nothing reads")
    print(f"{len(declared)} settings, {len(unread)} that nothing reads")
    return 1 if unread or len(declared) < 280 else 0


if __name__ == "__main__":
    sys.exit(main())
