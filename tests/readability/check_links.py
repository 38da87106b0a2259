#!/usr/bin/env python3
"""Holds the documents against the tree: every link leads somewhere, and every file that they name is there.

    tests/readability/check_links.py        one line for each that is wrong, as FILE:LINE: …; exits 1 if there is one

Looked at are, in every committed document, relative links and their anchors; in ARCHITECTURE.md, rdma/OWNERSHIP.md and docs/ also the
paths in backticks (`client/src/open.rs`: the end of a path in the tree is enough), whether docs/SUMMARY.md lists every page once, and
whether each row of docs/coverage.md names a file and says what is missing. And what the site of docs/build.sh would break: links to
files that it does not have, and pictures that are wider than its pages.
Links to other hosts are not asked. First it looks at documents that are wrong in each of these ways (`prove`).
"""

import fnmatch
import posixpath
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A name without a folder is looked for only if it is a source file: `gateway.toml` may be the reader's own.
SOURCE_SUFFIXES = (".rs", ".py", ".sh")
PATH_SUFFIXES = (*SOURCE_SUFFIXES, ".md", ".toml", ".yaml", ".json", ".conf", ".env")
# Columns that a page of the site shows without scrolling, in a window of 1280 pixels (docs/site.css).
PICTURE_COLUMNS_MAX = 114
# Parts of other documents, and no pages of the site (docs/build.sh).
PARTS = ("gateway/compatibility.template.md", "loadtest/findings.md")


def tree() -> list[str]:
    """All files of the repository, and those that are about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).split("\n")
    return [name for name in listed if name and (ROOT / name).is_file()]


def blanked(text: str, pattern: str) -> str:
    """The text with what matches made unreadable, at the same length and with the same lines."""
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", "x", match[0]), text, flags=re.MULTILINE | re.DOTALL)


def without_blocks(text: str) -> str:
    return blanked(blanked(text, r"^ *```.*?^ *```"), r"<!--.*?-->")


def anchors(text: str) -> set[str]:
    """What a heading is reached by, as GitHub and mdBook make it."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", without_blocks(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        again = 0
        while (name := f"{slug}-{again}" if again else slug) in found:
            again += 1
        found.add(name)
    return found


def links(text: str):
    """Each link's line and target, without those in code."""
    prose = blanked(without_blocks(text), r"`[^`\n]*`")
    for match in re.finditer(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]: +(\S+)", prose, re.MULTILINE):
        group = 1 if match[1] else 2
        # Of the text itself: an anchor may look like code.
        yield text.count("\n", 0, match.start()) + 1, text[match.start(group) : match.end(group)]


def is_on_site(path: str) -> bool:
    """Whether docs/build.sh copies the file."""
    return (path.endswith(".md") and path not in PARTS) or fnmatch.fnmatch(path, "config/examples/*.toml")


def wrong_links(path: str, text: str, files: set[str], read=lambda path: (ROOT / path).read_text(encoding="utf-8")):
    for line, target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        place, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), place)) if place else path
        if there not in files:
            yield line, f"link to {target}: there is no file {there}"
        elif is_on_site(path) and not is_on_site(there):
            yield line, f"link to {target}: the site of docs/build.sh does not have {there}; name it in backticks"
        elif anchor and there.endswith(".md") and anchor not in anchors(read(there)):
            yield line, f"link to {target}: {there} has no such heading"


def wide_pictures(text: str):
    """Lines of blocks of text that a page would cut off. Other blocks are commands and files, which have lines of any length."""
    for block in re.finditer(r"^ *```text\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for number, line in enumerate(block[1].splitlines()):
            if len(line) > PICTURE_COLUMNS_MAX:
                yield text.count("\n", 0, block.start(1)) + 1 + number, f"a picture of {len(line)} columns: a page has {PICTURE_COLUMNS_MAX}"


def alternatives(path: str) -> list[str]:
    """`a/{b,c}.rs` as a shell reads it."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    parts = match[1].split(",")
    return [one for part in parts for one in alternatives(path[: match.start()] + part.strip() + path[match.end() :])]


def is_path(words: str) -> bool:
    if not re.fullmatch(r"[A-Za-z0-9_.*{},/@-]+", words) or words.startswith("/"):
        return False
    if "/" in words.rstrip("/"):
        return words.endswith(("/", *PATH_SUFFIXES))
    return words.endswith(SOURCE_SUFFIXES)


def is_there(path: str, files: set[str], folders: set[str]) -> bool:
    path, among = (path.rstrip("/"), folders) if path.endswith("/") else (path, files)
    if "*" in path:
        return any(fnmatch.fnmatch(one, path) or fnmatch.fnmatch(one, f"*/{path}") for one in among)
    return any(one == path or one.endswith(f"/{path}") for one in among)


def wrong_paths(text: str, files: set[str], folders: set[str]):
    prose = without_blocks(text)
    for match in re.finditer(r"`([^`\n]+)`", prose):
        if not is_path(match[1]):
            continue
        for path in alternatives(match[1]):
            if not is_there(path, files, folders):
                yield prose.count("\n", 0, match.start()) + 1, f"`{path}` is not in the tree"


def unlisted(documents: list[str], summary: str):
    listed = [posixpath.normpath(f"docs/{target}") for _, target in links(summary)]
    for path in documents:
        count = listed.count(path)
        if path.startswith("docs/") and count != 1 and path != "docs/SUMMARY.md":
            yield f"docs/SUMMARY.md:1: {path} is listed {count} times" if count else f"docs/SUMMARY.md:1: {path} is not listed"


def unshown():
    """Rows of coverage that lead nowhere, or leave open whether something is missing."""
    for line, text in enumerate((ROOT / "docs/coverage.md").read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in text.strip("|").split("|")] if text.startswith("|") else []
        if not cells or cells[0] in ("asked for", "---"):
            continue
        if len(cells) != 3 or not all(cells):
            yield f"docs/coverage.md:{line}: a row is what is asked for, where it is, what is missing (–: nothing)"
        elif not re.search(r"\]\(|`[^`]*(/|\.(sh|yaml|json))[^`]*`", cells[1]):
            yield f"docs/coverage.md:{line}: {cells[0]} leads to no file"


def prove():
    """Every check notices what it is there for, or all of this says nothing."""
    files = {"docs/a.md", "docs/b.md", "deploy/tune.sh", "config/examples/gateway.toml", *PARTS}
    right = "# A b\n[b](b.md#b-b) [c](../config/examples/gateway.toml) [d](https://x/y.sh) `[e](none.md)`\n"

    def found(line: str) -> list[str]:
        return [what for _, what in wrong_links("docs/a.md", right + line, files, lambda path: "## B b\n")]

    assert found("") == [], found("")
    for line, said in [
        ("[x](none.md)", "no file docs/none.md"),
        ("[x](b.md#c)", "no such heading"),
        ("[x](../deploy/tune.sh)", "does not have deploy/tune.sh"),
        ("[x](../loadtest/findings.md)", "does not have"),
        ("[x](../deploy)", "no file deploy"),
    ]:
        assert [said in what for what in found(line)] == [True], (line, found(line))
    picture = "# A\n\n```text\n{}\n```\n"
    assert not list(wide_pictures(picture.format("x" * PICTURE_COLUMNS_MAX)))
    assert [line for line, _ in wide_pictures(picture.format("x\n" + "x" * (PICTURE_COLUMNS_MAX + 1)))] == [5]
    listed = ["docs/a.md", "docs/b.md"]
    assert not list(unlisted(listed, "[a](a.md) [b](b.md)"))
    assert len(list(unlisted(listed, "[a](a.md)"))) == len(list(unlisted(listed, "[a](a.md) [b](b.md) [again](a.md)"))) == 1
    assert [line for line, _ in wrong_paths("`a.md`\n`docs/none.md`\n", files, {"docs"})] == [2]


def main() -> int:
    prove()
    files = set(tree())
    folders = {str(parent) for name in files for parent in Path(name).parents}
    documents = sorted(name for name in files if name.endswith(".md"))
    summary = (ROOT / "docs/SUMMARY.md").read_text(encoding="utf-8")
    wrong = [*unlisted(documents, summary), *unshown()]
    for path in documents:
        text = (ROOT / path).read_text(encoding="utf-8")
        found = [*wrong_links(path, text, files), *wide_pictures(text)]
        if path in ("ARCHITECTURE.md", "rdma/OWNERSHIP.md") or path.startswith("docs/"):
            found += wrong_paths(text, files, folders)
        wrong += [f"{path}:{line}: {what}" for line, what in sorted(found)]
    print("\n".join([*wrong, f"{len(documents)} documents, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
