#!/usr/bin/env python3
"""Owns the measuring of instruction counts and their comparison with `expected.json`; called by `run.sh`.

    count.py DIR PROFILE VERBS3 TEST_BINARY...

A step of the hot path is a unit test that counts itself (`verbs3-instruction-counter`). A whole request is one that
`verbs3 dev` answers over a socket: gateway, worker and store in one process, all its threads counted.
"""

import http.client
import json
import os
import platform
import re
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "s3suite"), str(HERE.parent / "testbed")]
from free_ports import free_port  # noqa: E402
from sigv4 import UNSIGNED, Signer  # noqa: E402

EXPECTED = HERE / "expected.json"
# How far a count may be off, either way: a better one has to be recorded, or it is lost again unseen.
TOLERANCE = 0.05
IDENTITY = Signer("VERBS3COUNTS", "verbs3-instruction-counts")
WHOLE_REQUESTS = [("GET", 4 << 10), ("GET", 128 << 10), ("GET", 1 << 20), ("HEAD", 4 << 10)]
WARM_UPS, REQUESTS, ROUNDS = 100, 200, 5


def use_one_cpu() -> None:
    """For the emulator: with more CPUs, a server has more threads that wake each other, and counts get lost between them."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class EmulatedProcess:
    """A program under the emulated CPU, and the instructions that it has executed."""

    def __init__(self, folder: Path, name: str, command: list[str]):
        self.counter, self.log = folder / f"{name}.count", folder / f"{name}.log"
        self.counter.write_bytes(bytes(4096))
        emulator = ["qemu-x86_64", "-cpu", "max", "-plugin", str(folder / "count_plugin.so")]
        environment = os.environ | {"VERBS3_INSTRUCTION_COUNT": str(self.counter)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                emulator + command, env=environment, stdout=log, stderr=subprocess.STDOUT, preexec_fn=use_one_cpu)

    def executed(self) -> int:
        return struct.unpack("<Q", self.counter.read_bytes()[:8])[0]

    def log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def count_steps(folder: Path, binary: str) -> dict[str, int]:
    """The counts that the unit tests of one crate report."""
    tests = EmulatedProcess(folder, Path(binary).name, [binary, "instruction_counts", "--nocapture", "--test-threads=1"])
    try:
        status = tests.process.wait(timeout=600)
    except subprocess.TimeoutExpired:
        tests.process.kill()
        status = "no status within 600 s"
    if status != 0:
        sys.exit(f"instructions: {binary} ended with {status}:\n{tests.log_end()}")
    # The first of a test stands behind the test's name, on one line.
    counted = re.findall(r"\binstructions ([a-z0-9-]+) (\d+)$", tests.log.read_text(), re.MULTILINE)
    if not counted:
        sys.exit(f"instructions: {binary} counts nothing; its tests are called instruction_counts_of_...")
    return {name: int(count) for name, count in counted}


def serve(folder: Path, verbs3: str) -> tuple[EmulatedProcess, int]:
    """Starts `verbs3 dev` and returns it with its port, once it answers."""
    port = free_port()
    identities, config = folder / "identities.toml", folder / "dev.toml"
    identities.write_text(
        f'[[identity]]\nname = "counts"\naccess_key = "{IDENTITY.access_key}"\nsecret_key = "{IDENTITY.secret_key}"\n'
        'allow = [{ mount = "*", rights = ["read", "write"] }]\n')
    config.write_text(
        f'[dev]\ndir = "{folder}/store"\ndemo = false\n[log]\nlevel = "warn"\n[worker]\nmemory = {{ capacity = "64MiB" }}\n'
        f'[gateway]\nlisten = "127.0.0.1:{port}"\nadmin_listen = "127.0.0.1:0"\nidentities = "{identities}"\n'
        'memory = { capacity = "64MiB" }\n')
    server = EmulatedProcess(folder, "dev", [verbs3, "dev", "--config", str(config)])
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/")
            connection.getresponse().read()
            return server, port
        except OSError:
            if server.process.poll() is not None:
                break
            time.sleep(0.1)
    server.process.kill()
    sys.exit(f"instructions: verbs3 dev does not serve:\n{server.log_end()}")


def ask(connection: http.client.HTTPConnection, method: str, target: str, headers: dict, body: bytes = b"") -> bytes:
    connection.request(method, target, body=body, headers=headers)
    answer = connection.getresponse()
    read = answer.read()
    if answer.status != 200:
        sys.exit(f"instructions: {method} {target}: {answer.status} {read[:500]!r}")
    return read


def count_requests(folder: Path, verbs3: str) -> dict[str, int]:
    """The count of each whole request: the median of rounds, over one connection."""
    server, port = serve(folder, verbs3)
    host, counts = f"127.0.0.1:{port}", {}
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for method, size in WHOLE_REQUESTS:
            target, data = f"/demo/object-{size}", os.urandom(size)
            put = IDENTITY.authorize("PUT", target, [], {"host": host}, UNSIGNED)
            ask(connection, "PUT", target, put, data)
            # Signed once: the server's work is counted alone.
            headers = IDENTITY.authorize(method, target, [], {"host": host}, UNSIGNED)
            rounds = []
            for requests in [WARM_UPS] + [REQUESTS] * ROUNDS:
                begun = server.executed()
                for _ in range(requests):
                    read = ask(connection, method, target, headers)
                    assert method == "HEAD" or read == data, f"{target}: other bytes than were put"
                rounds.append((server.executed() - begun) / requests)
            counts[f"{method.lower()}-{size >> 10}k"] = round(statistics.median(rounds[1:]))
    finally:
        server.process.terminate()
        server.process.wait(timeout=60)
    return counts


def compare(counts: dict[str, int], expected: dict) -> list[str]:
    """Prints each count beside what is expected, and returns what is off."""
    wrong = []
    for name, count in counts.items():
        was = expected["counts"].get(name)
        print(f"{name:28} {count:>12,}   {f'{count / was - 1:+.1%} of {was:,}' if was else 'new'}")
        if was is None or abs(count / was - 1) > TOLERANCE:
            wrong.append(f"{name}: {count:,} instructions, {was or 'none'} expected")
    return wrong


def main() -> int:
    folder, profile, verbs3, tests = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    emulator = subprocess.run(["qemu-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    made_by = {
        "rustc": os.environ["RUSTC"], "profile": profile, "emulator": emulator.splitlines()[0],
        "libc": " ".join(platform.libc_ver())}
    counts = {name: count for binary in tests for name, count in count_steps(folder, binary).items()}
    counts |= count_requests(folder, verbs3)
    result = made_by | {"counts": dict(sorted(counts.items()))}
    (folder / "counts.json").write_text(json.dumps(result, indent=1) + "\n")
    if os.environ.get("BLESS"):
        EXPECTED.write_text(json.dumps(result, indent=1) + "\n")
    expected = json.loads(EXPECTED.read_text())
    unproven = folder / "not-proven"
    unproven.unlink(missing_ok=True)
    wrong = compare(result["counts"], expected)
    lost = expected["counts"].keys() - result["counts"].keys()
    for name in sorted(lost):
        print(f"error: {name} is counted no more; is it meant? Then record it: BLESS=1 ./verbs3-test instructions")
    others = [f"{name} {expected[name]}" for name in made_by if made_by[name] != expected[name]]
    if others:
        unproven.write_text(
            f"instruction counts: expected.json is of {', '.join(others)}, and this is {', '.join(made_by.values())}\n")
        return 1 if lost else 0
    for reason in wrong:
        print(f"error: {reason}; is it meant? Then record it: BLESS=1 ./verbs3-test instructions")
    return 1 if wrong or lost else 0


if __name__ == "__main__":
    sys.exit(main())
