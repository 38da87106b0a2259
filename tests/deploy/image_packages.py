#!/usr/bin/env python3
"""packages.py of the image: what it takes, from where, and what it refuses. Packages are made here, and served on 127.0.0.1.

    image_packages.py DIR      DIR takes them

Prints what is wrong and exits 1."""

import hashlib
import os
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "deploy/container/packages.py"
TAKEN, DAY_LATER = "20260301T120000Z", "20260302T120000Z"
FILE = "pool/main/t/tiny/tiny_1.0_amd64.deb"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass


def make_package(folder: Path) -> bytes:
    (folder / "tree/DEBIAN").mkdir(parents=True)
    (folder / "tree/DEBIAN/control").write_text(
        "Package: tiny\nVersion: 1:1.0\nArchitecture: amd64\nMaintainer: nobody <nobody@localhost>\nDescription: tiny\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", folder / "tree", folder / "tiny.deb"], check=True, capture_output=True)
    return (folder / "tiny.deb").read_bytes()


def main(folder: Path) -> list[str]:
    package = make_package(folder)
    digest = hashlib.sha256(package).hexdigest()
    served = folder / "served"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    lock, wrong, tried = folder / "packages.lock", [], 0
    told = {name: value for name, value in os.environ.items() if not name.startswith("DEBIAN_") and not name.lower().endswith("_proxy")}
    told |= {"DEBIAN_LOCK": str(lock), "DEBIAN_MIRROR": f"{address}/mirror", "DEBIAN_SNAPSHOT": f"{address}/snapshot"}

    def place(path: str, content: bytes) -> None:
        (served / path).parent.mkdir(parents=True, exist_ok=True)
        (served / path).write_bytes(content)

    def attempt(what: str, expected: str, **more: str) -> Path:
        """Fetches into a new folder. EXPECTED: what it says where it refuses, or nothing."""
        nonlocal tried
        tried += 1
        here = folder / f"fetched-{tried}"
        done = subprocess.run([PACKAGES, "fetch", "base", here], env=told | more, capture_output=True, text=True)
        if (done.returncode == 0) == bool(expected) or expected not in done.stderr:
            wrong.append(f"{what}: {done.returncode}, {done.stdout}{done.stderr}")
        return here

    def lock_package(checksum: str, suffix: str = "") -> None:
        lock.write_text(f"# for tests\ntaken {TAKEN}\nbase tiny 1:1.0 amd64 {checksum} debian/{FILE}{suffix}\n")

    served.mkdir()
    lock_package(digest)
    attempt("a package that is nowhere", "is at neither")
    place(f"snapshot/archive/debian/{DAY_LATER}/{FILE}", package)
    here = attempt("a package that the snapshot alone has", "")
    if f"SHA256: {digest}\n" not in (here / "Packages").read_text() or (here / "tiny_1.0_amd64.deb").read_bytes() != package:
        wrong.append("what was fetched is not what the lock names")
    place(f"mirror/debian/{FILE}", package[:-1] + b"x")
    attempt("another file at the mirror, and the right one in the snapshot", "")
    place(f"snapshot/archive/debian/{DAY_LATER}/{FILE}", package[:-1] + b"x")
    attempt("another file at both", "is at neither")
    attempt("another file at both, and the right one brought along", "", DEBIAN_PACKAGES=str(here))
    (here / "tiny_1.0_amd64.deb").write_bytes(package[:-1] + b"x")
    attempt("another file brought along", "is at neither", DEBIAN_PACKAGES=str(here))
    lock_package("0" * 63)
    attempt("a checksum that is none", "not understood")
    lock_package(digest, " more")
    attempt("a line with more words", "not understood")
    lock.write_text(f"taken {TAKEN}\n")
    attempt("a lock that names nothing", "names nothing")
    server.shutdown()
    print(f"image: {tried} ways to fetch packages")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 1)
