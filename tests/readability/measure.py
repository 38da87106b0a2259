#!/usr/bin/env python3
"""How the code and its documents read, as a table of measures, each with its goal.

    tests/readability/measure.py             the table; exits 1 where a goal is missed
    tests/readability/measure.py NAME        what counts against one measure, by file and line

A measure is a floor, not the aim: it finds what is certainly hard to read. Tests are left out, but for their names, and what stands in
`exceptions.toml`, each with its reason.
"""

import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from file_circles import file_circles
from rust_source import end_of_braces, is_test_path, read

ROOT = Path(__file__).resolve().parents[2]
COLUMNS_MAX = 100
FILE_LINES_MAX = 500
FUNCTION_NAME_LETTERS_MAX = 60
DOCUMENT_LINES_MAX = 200
# References that are made from the code: nobody reads them from beginning to end.
GENERATED_DOCUMENTS = ("docs/metrics.md", "docs/configuration/")
TYPE_KINDS = ("struct", "enum", "union", "trait", "type")
# Names that Rust's own library gives to what they do.
CONVENTIONAL = set(
    "new default len fmt from next get drop clone into eq hash main poll read write build deref".split()
)


class Tree:
    """What is measured: the product's sources, and its documents."""

    def __init__(self, root):
        listed = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).split("\n")
        paths = [Path(name) for name in listed if name and (root / name).is_file()]
        self.root = root
        self.sources = [read(root, path) for path in paths if path.suffix == ".rs" and not is_test_path(path)]
        self.code_files = [path for path in paths if path.suffix in (".rs", ".py")]
        self.documents = [path for path in paths if path.suffix == ".md"]
        self.functions = [(s, d) for s in self.sources for d in s.definitions if d.kind == "fn"]
        self.types = [(s, d) for s in self.sources for d in s.definitions if d.kind in TYPE_KINDS and not d.within]


def found_at(source, definition):
    return f"{source.path}:{definition.line}: {definition.name}"


def share(part, whole):
    return 100 * len(part) / max(1, len(whole))


def one_word_functions(tree):
    found = [
        found_at(s, d) for s, d in tree.functions
        if "_" not in d.name and d.name not in CONVENTIONAL and not re.match(r"impl\b.*\bfor\b", d.within)
    ]
    return share(found, tree.functions), found


def shared_type_names(tree):
    files = defaultdict(set)
    for source, definition in tree.types:
        files[definition.name].add(source.path)
    found = [found_at(s, d) for s, d in tree.types if len(files[d.name]) > 1]
    return share(found, tree.types), sorted(found, key=lambda line: line.split()[-1])


def type_name_letters(tree):
    found = sorted((len(d.name), found_at(s, d)) for s, d in tree.types)
    return sum(length for length, _ in found) / max(1, len(found)), [line for _, line in found]


def tuple_parameters(tree):
    found = []
    for source, definition in tree.functions:
        start = source.code.find("(", definition.position)
        depth, end = 0, start
        for end in range(start, len(source.code)):
            depth += {"(": 1, ")": -1}.get(source.code[end], 0)
            if depth == 0:
                break
        # Not `&(dyn Trait + Send)`.
        if re.search(r":\s*(?:&(?:'\w+\s+)?(?:mut\s+)?)?\((?!\s*\)|\s*dyn\b)", source.code[start + 1 : end]):
            found.append(found_at(source, definition))
    return len(found), found


def long_files(tree):
    found = [f"{s.path}: {lines} lines" for s in tree.sources if (lines := s.text.count("\n")) > FILE_LINES_MAX]
    return len(found), found


def long_test_names(tree):
    """Counts every function; tests alone tend to such names."""
    found = []
    for path in tree.code_files:
        for number, line in enumerate((tree.root / path).read_text().split("\n"), 1):
            for name in re.findall(r"\b(?:fn|def)\s+(\w+)", line):
                if len(name) > FUNCTION_NAME_LETTERS_MAX:
                    found.append(f"{path}:{number}: {name}: {len(name)} letters")
    return len(found), found


def long_code_lines(tree):
    lines = [
        (source, number, line)
        for source in tree.sources for number, line in enumerate(source.text.split("\n"), 1) if line.strip()
    ]
    found = [f"{s.path}:{number}: {len(line)} columns" for s, number, line in lines if len(line) > COLUMNS_MAX]
    return share(found, lines), found


def undocumented_items(tree):
    items = [
        (s, d) for s in tree.sources for d in s.definitions
        if d.visibility == "pub" and d.kind != "mod" and not re.match(r"impl\b.*\bfor\b", d.within)
    ]
    found = [found_at(s, d) for s, d in items if not d.documented]
    return share(found, items), found


def text_reasons(tree):
    found = []
    for source in tree.sources:
        for match in re.finditer(r"\breason: String\b", source.code):
            found.append(f"{source.path}:{source.code.count(chr(10), 0, match.start()) + 1}")
    return len(found), found


def circles(tree):
    found = file_circles(tree.sources)
    return len(found), [" ".join(circle) for circle in found]


def paragraphs(text):
    """Prose alone: no code, tables, headings or comments. A list's items are paragraphs of their own."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    block = []
    for line in text.split("\n") + [""]:
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        if not line.strip() or line.lstrip().startswith(("#", "|")) or item:
            if block:
                yield " ".join(block)
            block = [line[item.end() :].strip()] if item else []
        else:
            block.append(line.strip())


def sentences(paragraph):
    plain = re.sub(r"`[^`]*`", "code", paragraph)
    return [s for s in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])|(?<=[.!?])\s+", plain) if re.search(r"\w", s)]


def architecture(tree):
    return list(paragraphs((tree.root / "ARCHITECTURE.md").read_text()))


def sentence_words(tree):
    found = [(len(s.split()), s) for p in architecture(tree) for s in sentences(p)]
    found.sort(reverse=True)
    return sum(n for n, _ in found) / max(1, len(found)), [f"{n} words: {s}" for n, s in found]


def paragraph_words(tree):
    found = sorted(((len(p.split()), p) for p in architecture(tree)), reverse=True)
    return found[0][0] if found else 0, [f"{n} words: {p[:100]}" for n, p in found]


def long_document_lines(tree):
    found = []
    for path in tree.documents:
        fenced = False
        for number, line in enumerate((tree.root / path).read_text().split("\n"), 1):
            fenced ^= line.startswith("```")
            # A link, and a table's row, can't be wrapped.
            if len(line) > COLUMNS_MAX and not fenced and not line.startswith("|") and "](" not in line:
                found.append(f"{path}:{number}: {len(line)} columns")
    return len(found), found


def long_documents(tree):
    """Of docs/ and of the top level: what people read as a whole."""
    read_whole = [
        path for path in tree.documents
        if (len(path.parts) == 1 or path.parts[0] == "docs") and not str(path).startswith(GENERATED_DOCUMENTS)
    ]
    lengths = {path: (tree.root / path).read_text().count("\n") for path in read_whole}
    found = [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > DOCUMENT_LINES_MAX]
    return len(found), found


# name: (measure, goal, whether the figure must be at least the goal, unit)
MEASURES = {
    "one-word-functions": (one_word_functions, 25, False, "% of functions"),
    "shared-type-names": (shared_type_names, 5, False, "% of types"),
    "type-name-letters": (type_name_letters, 11, True, "letters, mean"),
    "tuple-parameters": (tuple_parameters, 0, False, "functions"),
    "long-files": (long_files, 0, False, "files"),
    "long-test-names": (long_test_names, 0, False, "functions of Rust and Python"),
    "long-code-lines": (long_code_lines, 0.3, False, "% of lines"),
    "undocumented-items": (undocumented_items, 3, False, "% of public items"),
    "text-reasons": (text_reasons, 0, False, "`reason: String`"),
    "file-circles": (circles, 0, False, "circles"),
    "sentence-words": (sentence_words, 18, False, "words a sentence, ARCHITECTURE.md"),
    "paragraph-words": (paragraph_words, 90, False, "words, longest paragraph of ARCHITECTURE.md"),
    "long-document-lines": (long_document_lines, 0, False, "lines"),
    "long-documents": (long_documents, 0, False, "documents of docs/ and the top level"),
}


def main():
    tree = Tree(ROOT)
    exceptions = tomllib.loads((Path(__file__).parent / "exceptions.toml").read_text())
    if len(sys.argv) > 1:
        if sys.argv[1] not in MEASURES:
            sys.exit(f"no measure '{sys.argv[1]}'; there are: {', '.join(MEASURES)}")
        print("\n".join(MEASURES[sys.argv[1]][0](tree)[1]))
        return
    missed = []
    print(f"{'measure':<22}{'figure':>9}{'goal':>8}  unit")
    for name, (measure, goal, at_least, unit) in MEASURES.items():
        figure = measure(tree)[0]
        allowed = exceptions.get(name, {}).get("allowed", goal)
        well = figure >= allowed if at_least else figure <= allowed
        if not well:
            missed.append(name)
        remark = "" if well else "  MISSED"
        if allowed != goal:
            remark += f"  (allowed {allowed}: {exceptions[name]['reason']})"
        print(f"{name:<22}{figure:>9.1f}{goal:>8}  {unit}{remark}")
    for name in missed:
        print(f"error: {name} is beyond its goal; see what counts: tests/readability/measure.py {name}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
