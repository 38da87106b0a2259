"""Rust source as text without its comments and strings, and what is defined in it.

It knows as much of Rust as the measures of `measure.py` need: it is no parser. Lines and columns stay where they were, so that
what is found can be named by file and line.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*.*?\*/)
  | (?P<raw>b?r(?P<hashes>\#*)"(?:.*?)"(?P=hashes))
  | (?P<string>b?c?"(?:[^"\\]|\\.)*")
  | (?P<char>b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))')
    """,
    re.VERBOSE | re.DOTALL,
)

ITEM = re.compile(
    r"^(?P<indent>[ ]*)(?P<visibility>pub(?:\((?:crate|super|in [^)]*)\))?\s+)?"
    r"(?:default\s+)?(?:const\s+(?=fn|unsafe|extern|async))?(?:async\s+)?(?:unsafe\s+)?(?:extern\s+\"[^\"]*\"\s+)?"
    r"(?P<kind>fn|struct|enum|union|trait|type|const|static|mod)\s+(?P<name>[A-Za-z_]\w*)",
    re.MULTILINE,
)


def blank(text):
    """The same lines and columns, all spaces."""
    return re.sub(r"[^\n]", " ", text)


def without_comments_and_strings(text):
    def replace(match):
        if match.lastgroup in ("line", "block") or match.group("line") or match.group("block"):
            return blank(match.group())
        quote = match.group()
        return quote[0] + blank(quote[1:-1]) + quote[-1] if len(quote) > 1 else quote

    return TOKEN.sub(replace, text)


def end_of_braces(code, start):
    """The position behind the brace that closes the first one at or after `start`."""
    depth = 0
    for position in range(code.index("{", start), len(code)):
        if code[position] == "{":
            depth += 1
        elif code[position] == "}":
            depth -= 1
            if depth == 0:
                return position + 1
    return len(code)


def without_test_modules(code):
    for match in reversed(list(re.finditer(r"#\[cfg\((?:all\()?test\b[^\]]*\)\]\s*(?:pub(?:\([^)]*\))?\s+)?(?:mod|impl|fn)\b", code))):
        brace, semicolon = code.find("{", match.end()), code.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue
        end = end_of_braces(code, match.end())
        code = code[: match.start()] + blank(code[match.start() : end]) + code[end:]
    return code


@dataclass
class Definition:
    kind: str
    name: str
    visibility: str
    line: int
    position: int
    documented: bool
    # "impl Trait for Type", "impl Type", "trait Name", or "" at the top
    within: str = ""


@dataclass
class SourceFile:
    path: Path
    text: str
    code: str
    definitions: list = field(default_factory=list)


def is_test_path(path):
    parts = path.parts
    return path.name in ("tests.rs", "testing.rs") or "tests" in parts or "benches" in parts or parts[0] in ("tests", "fuzz")


def enclosing_blocks(code):
    """(start, end, head) of each impl and trait block."""
    blocks = []
    for match in re.finditer(r"^[ ]*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(impl\b|trait\b)", code, re.MULTILINE):
        brace = code.find("{", match.end())
        semicolon = code.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue
        head = " ".join(code[match.start(1) : brace].split())
        blocks.append((brace, end_of_braces(code, brace), head))
    return blocks


def is_documented(lines, index):
    """Whether a doc comment stands above line `index`, over its attributes."""
    index -= 1
    depth = 0
    while index >= 0:
        line = lines[index].strip()
        if line.startswith("///") or line.startswith("#[doc"):
            return True
        depth += line.count("]") - line.count("[")
        if line.startswith("#[") or depth > 0 or line.endswith(")]") or line.startswith("//"):
            index -= 1
            continue
        return False
    return False


def read(root, path):
    text = (root / path).read_text()
    code = without_test_modules(without_comments_and_strings(text))
    source = SourceFile(path, text, code)
    lines = text.split("\n")
    blocks = enclosing_blocks(code)
    for match in ITEM.finditer(code):
        position = match.start("kind")
        line = code.count("\n", 0, position)
        within = ""
        for start, end, head in blocks:
            if start < position < end:
                within = head
        source.definitions.append(
            Definition(
                match["kind"], match["name"], (match["visibility"] or "").strip(), line + 1, position,
                is_documented(lines, line), within,
            )
        )
    return source
