"""Owns what the client jobs share: a tree of files, a way to run a command line client, buckets. Judged by bytes, not recorded."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from data import MIB, PART_BYTES, made

# name → size: empty, small, around a page and a block of the cache, several parts of a multipart upload.
TREE = {
    "empty": 0, "one": 1, "small.txt": 1000, "dir/page": 262_144, "dir/page-and-one": 262_145, "dir/sub/block": 4 * MIB,
    "dir/sub/parts.bin": 2 * PART_BYTES + 12_345, "with space/ä ö+ü.txt": 5000, "deep/a/b/c/d/e": 77, "large.bin": 33 * MIB + 9,
}


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name, size in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made(size, name))
    return root


def digests(root: Path) -> dict[str, str]:
    """Relative path → SHA-256 of every file under ROOT."""
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def same_tree():
    def compare(wanted: Path, found: Path) -> None:
        assert digests(found) == digests(wanted)

    return compare


@pytest.fixture
def run_tool(tmp_path):
    """run_tool(endpoint, name, *arguments) → stdout of a program of the suite's own venv; a failure fails the case."""

    def call(to, name: str, *arguments: str, ok: bool = True) -> str:
        program = os.path.join(os.path.dirname(sys.executable), name)
        done = subprocess.run([program, *arguments], env=to.environment() | {"HOME": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True,
                              timeout=120)
        assert (done.returncode == 0) == ok, f"{name} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    return call
