#!/usr/bin/env python3
"""Owns where a build's test binaries are, as cargo told when it built them, and runs them without cargo.

    built.py path BUILT.json NAME     the path of the test binary of target NAME (`partitions`, `verbs3_rdma`)
    built.py run BUILT.json           runs every test binary, one after the other, also after a failure

BUILT.json: what `cargo build --message-format=json-render-diagnostics` printed. Without cargo, because a cargo that
builds something else meanwhile would keep this one waiting. Doc tests are cargo's own affair.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def tests(built: str) -> list[tuple[str, str, Path]]:
    """(target, path, the package's folder) of each test binary, in the order of packages and targets."""
    found = {}
    for line in Path(built).read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        # `--all-targets` also builds harnesses of targets that say `test = false`.
        if message["profile"]["test"] and message["target"]["test"]:
            target, folder = message["target"], Path(message["manifest_path"]).parent
            # Unit tests first, as cargo has them.
            found[(str(folder), "test" in target["kind"], target["name"], target["kind"][0])] = (target["name"], message["executable"], folder)
    return [found[key] for key in sorted(found)]


def run(built: str) -> int:
    failed = []
    for name, path, folder in tests(built):
        print(f"     Running {name} ({path})", flush=True)
        # What cargo sets and a test may ask for.
        status = subprocess.run([path], cwd=folder, env=os.environ | {"CARGO_MANIFEST_DIR": str(folder)}).returncode
        if status != 0:
            print(f"error: test binary {name} ended with {status}", flush=True)
            failed.append(name)
    if failed:
        print("error: failed: " + ", ".join(failed))
    return 1 if failed or not tests(built) else 0


def path(built: str, name: str) -> int:
    found = [path for target, path, _ in tests(built) if target == name]
    if len(found) != 1:
        print(f"built.py: {len(found)} test binaries are called {name} in {built}", file=sys.stderr)
        return 1
    print(found[0])
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", built]:
            sys.exit(run(built))
        case ["path", built, name]:
            sys.exit(path(built, name))
    sys.exit(__doc__)
