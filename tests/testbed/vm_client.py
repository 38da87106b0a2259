#!/usr/bin/env python3
"""Owns what the VM's system tests ask of a gateway: objects put, and read again and again in ranges, every byte compared.

    vm_client.py put  ENDPOINT ACCESS SECRET
    vm_client.py store ENDPOINT ACCESS SECRET FILE      one object, `demo/object`
    vm_client.py compare ENDPOINT ACCESS SECRET LIST    objects of `demo`, by lines `KEY SHA256` or `KEY absent`
    vm_client.py read ENDPOINT ACCESS SECRET LOG SECONDS [--until FILE]

`read` writes a line to LOG for each answer, `SECONDS TRANSPORT CACHE BYTES MILLISECONDS`, and ends after SECONDS or when
FILE is there. Exit 1 at the first answer that is not right: a status but 206, a wrong byte, a body cut short, or an
answer that takes longer than PATIENCE. No library but the standard one: imports are dear in the guest.
"""

import hashlib
import http.client
import pathlib
import random
import sys
import time
from urllib.parse import urlsplit

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "s3suite"))
from sigv4 import UNSIGNED, Signer  # noqa: E402

BUCKET = "vm-reads"
# A page, a little more than a page, one block, and several with a rest.
SIZES = [1000, 300_000, 4 << 20, 9_000_001]
OBJECTS = 8
PATIENCE = 120


def content(number: int) -> bytes:
    return random.Random(number).randbytes(SIZES[number % len(SIZES)])


class Client:
    def __init__(self, endpoint: str, access: str, secret: str):
        self.host = urlsplit(endpoint).netloc
        self.keys = (access, secret)
        self.connection = None

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str):
        signed = Signer(*self.keys).authorize(method, path, [], {"host": self.host} | headers, UNSIGNED)
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        self.connection.request(method, path, body=body, headers=signed)
        answer = self.connection.getresponse()
        return answer, answer.read()


def put(client: Client) -> None:
    made, text = client.request("PUT", f"/{BUCKET}")
    assert made.status in (200, 409), (made.status, text)
    for number in range(OBJECTS):
        until = time.monotonic() + PATIENCE
        while True:
            answer, text = client.request("PUT", f"/{BUCKET}/{number}", content(number))
            # A home that was silent for as long as a write waits, in a guest that starves: asked again, as S3's clients do.
            if answer.status != 503 or time.monotonic() > until:
                break
            print(f"object {number} is put again: {text[:300]!r}", flush=True)
            time.sleep(1)
        assert answer.status == 200, (answer.status, text)


def store(client: Client, file: str) -> None:
    answer, body = client.request("PUT", "/demo/object", pathlib.Path(file).read_bytes())
    if answer.status != 200:
        sys.exit(f"demo/object: {answer.status} {body!r}")


def compare(client: Client, listed: str) -> None:
    for line in pathlib.Path(listed).read_text().splitlines():
        key, expected = line.split()
        answer, body = client.request("GET", f"/demo/{key}")
        found = {200: hashlib.sha256(body).hexdigest(), 404: "absent"}.get(answer.status, f"status {answer.status}")
        if found != expected:
            sys.exit(f"demo/{key}: {found}, and not {expected}")


def read(client: Client, log, seconds: float, until: pathlib.Path | None) -> None:
    objects = [content(number) for number in range(OBJECTS)]
    began = time.monotonic()
    while time.monotonic() - began < seconds and not (until and until.exists()):
        number = random.randrange(OBJECTS)
        whole = objects[number]
        first = random.randrange(len(whole))
        last = min(first + random.choice([4096, 300_000, 2 << 20]), len(whole)) - 1
        asked = time.monotonic()
        answer, body = client.request("GET", f"/{BUCKET}/{number}", range=f"bytes={first}-{last}")
        took = time.monotonic() - asked
        assert answer.status == 206, (answer.status, body[:300])
        assert body == whole[first : last + 1], f"wrong bytes: object {number}, {first}-{last}"
        transport, cache = answer.getheader("x-verbs3-transport"), answer.getheader("x-verbs3-cache")
        log.write(f"{asked - began:.2f} {transport} {cache} {len(body)} {took * 1000:.0f}\n")
        log.flush()


def main() -> None:
    what, endpoint, access, secret, *rest = sys.argv[1:]
    client = Client(endpoint, access, secret)
    if what == "put":
        put(client)
    elif what == "store":
        store(client, rest[0])
    elif what == "compare":
        compare(client, rest[0])
    else:
        until = pathlib.Path(rest[3]) if rest[2:3] == ["--until"] else None
        with open(rest[0], "w", encoding="utf-8") as log:
            read(client, log, float(rest[1]), until)


main()
