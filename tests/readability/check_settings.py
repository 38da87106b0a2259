#!/usr/bin/env python3
"""Holds the settings against the code: whatever a user may write, something obeys; whatever a message names can be written.

    tests/readability/check_settings.py     one line for each setting that nothing reads, and for each name in a message that is
                                            none; exits 1 if there is one

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

# What a message tells its reader to change.
ADVICE = re.compile(r"\b(?:raise|lower|set|lengthen|shorten) ((?:[a-z0-9]+[_.])+[a-z0-9_]+)")
REFERENCE = ROOT / "docs" / "configuration"
SECTION = re.compile(r"^## `\[+([^\]]+)\]+`", re.MULTILINE)


def written_paths() -> set[str]:
    """Every setting by its path, out of the generated reference."""
    paths = set()
    for page in REFERENCE.glob("*.md"):
        section = ""
        for line in page.read_text().splitlines():
            if heading := SECTION.match(line):
                section = heading[1]
                paths.add(section)
            elif row := re.match(r"\| `(\w+)` \|", line):
                paths.add(f"{section}.{row[1]}")
    return paths


def misnamed(tree: Tree) -> list[str]:
    """Advice that names no setting. The load generator's own configuration is no part of the reference."""
    paths, wrong = written_paths(), []
    for source in tree.sources:
        if str(source.path).startswith("loadtest/"):
            continue
        joined = re.sub(r"\\\n\s*", "", (ROOT / source.path).read_text())
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"', joined):
            wrong += [f"{source.path}: {name} is no setting" for name in ADVICE.findall(text) if name.rstrip(".") not in paths]
    return wrong


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
    wrong = misnamed(tree)
    print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{len(declared)} settings, {len(unread)} that nothing reads, {len(wrong)} names in messages that are none")
    return 1 if unread or wrong or len(declared) < 280 else 0


if __name__ == "__main__":
    sys.exit(main())
