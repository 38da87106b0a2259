"""Owns what the client jobs share: a tree of files, ways to run a client in its environment, what was shown of it.

Jobs are judged by bytes and by the tier's metrics (proof.py), not recorded.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from data import MIB, PART_BYTES, made

sys.path.insert(0, os.path.dirname(__file__))

import proof  # noqa: E402

TESTBED = Path(__file__).parents[2] / "testbed"
JOBS = Path(__file__).parent / "jobs"

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
    """run_tool(endpoint, name, *arguments) → stdout of a program of the suite's own venv, else of the machine; a failure fails the case."""

    def call(to, name: str, *arguments: str, ok: bool = True, **more: str) -> str:
        program = os.path.join(os.path.dirname(sys.executable), name)
        program = program if os.path.exists(program) else shutil.which(name)
        assert program, f"{name} is not installed: tests/testbed/packages.sh does"
        done = subprocess.run([program, *arguments], env=to.environment() | {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8"} | more, cwd=tmp_path,
                              capture_output=True, text=True, timeout=120)
        assert (done.returncode == 0) == ok, f"{name} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    return call


@pytest.fixture
def run_job(tmp_path):
    """run_job(endpoint, command, job, *arguments) → the JSON that jobs/JOB prints last, run by COMMAND in its own environment."""

    def call(to, command: list[str], job: str, *arguments: str, **more: str) -> dict:
        done = subprocess.run([*command, job, *arguments], env=to.environment() | {"HOME": str(tmp_path)} | more, cwd=tmp_path, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, f"{job} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        return json.loads(done.stdout.splitlines()[-1])

    return call


def prepared(script: str, *arguments: str) -> str:
    return subprocess.run([TESTBED / script, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def torch_job(tmp_path, writer):
    """torch_job(name, **environment) → step(endpoint, *arguments) → what jobs/NAME answers, in the chroot that has torch.

    All steps of a case run in one process there. The case's own folder is /job.
    """
    if os.geteuid() != 0:
        not_proven("clients that need torch: their chroot needs root")
    started: list[subprocess.Popen] = []

    def start(name: str, **more: str):
        for each in (name, "serving.py"):
            shutil.copy(JOBS / each, tmp_path / each)
        complaints = open(tmp_path / "complaints", "w+", encoding="utf-8")
        process = subprocess.Popen([TESTBED / "torch.sh", "run", tmp_path, "python3", f"/job/{name}"], env=writer.environment() | more, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints)
        started.append(process)

        def step(to, *arguments: str) -> dict:
            print(json.dumps([to.url, *arguments]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, f"{name} {arguments} ended:\n{(tmp_path / 'complaints').read_text()[-3000:]}"
            return json.loads(answer)

        return step

    yield start
    for process in started:
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()


@pytest.fixture
def bucket(make_bucket, monkeypatch):
    """One that no run had before: the tier still has the pages of an equal object of the same name, and they are good."""
    monkeypatch.setenv("S3_BUCKET_PREFIX", f"client-{time.time_ns():x}")
    return make_bucket()


@pytest.fixture
def job(request, make_bucket):
    """job(client, version, what) → its Proof; a case that passes puts it into the matrix. Begins when it is called."""
    begun: list[proof.Proof] = []

    def begin(client: str, version: str, what: str) -> proof.Proof:
        begun.append(proof.Proof(client, version, what))
        return begun[-1]

    # Before the bucket goes: emptying it lists and deletes, which isn't the client's doing.
    yield begin
    for each in begun:
        if getattr(request.node, "suite_outcome", "") == "passed":
            proof.write(each.row())


def not_proven(what: str) -> None:
    """Says loudly what could not be shown on this machine, and leaves the case out."""
    if path := os.environ.get("S3_NOT_PROVEN"):
        with open(path, "a", encoding="utf-8") as out:
            out.write(f"{what}\n")
    pytest.skip(f"NOT PROVEN: {what}")


@pytest.fixture(scope="session")
def tree_bytes() -> int:
    return sum(TREE.values())
