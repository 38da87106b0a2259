"""Owns what a client's job must show besides its bytes: that cold came from the store, and hot from the tier alone.

Asked of the metrics of the gateways and workers under test (S3_ADMIN, a comma-separated list of admin addresses), never
of the client. What was shown goes to S3_MATRIX, one JSON line for each client; matrix.py makes the table of docs/clients.md of it.
"""

import json
import os
import re
import time
import urllib.request
from contextlib import contextmanager

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
# Columns of the matrix that are seen by the operations that the gateways answered.
OPERATIONS = {"put": {"PutObject", "CompleteMultipartUpload"}, "get": {"GetObject"}, "list": {"ListObjects", "ListObjectsV2"},
              "multipart": {"CompleteMultipartUpload"}}
COLUMNS = ["put", "get", "list", "multipart", "cold", "hot"]


def admins() -> list[str]:
    found = [word for word in os.environ.get("S3_ADMIN", "").split(",") if word]
    assert found, "S3_ADMIN is not set: the clients' jobs need the admin addresses of what they run against"
    return found


def scrape() -> list[tuple[str, dict[str, str], float]]:
    samples = []
    for address in admins():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if match := SAMPLE.match(line):
                    labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                    samples.append((match[1], labels, float(match[3])))
    return samples


class Counts:
    """What the processes under test have counted, at one moment."""

    def __init__(self):
        samples = scrape()

        def total(name: str, **wanted: str) -> int:
            return int(sum(value for found, labels, value in samples if found == name and labels.items() >= wanted.items()))

        self.from_store = total("verbs3_ufs_bytes_read_total")
        self.fills = total("verbs3_worker_fills_in_flight")
        self.hit_bytes = total("verbs3_gateway_body_bytes_sent_total", verdict="hit")
        self.operations: dict[str, int] = {}
        for name, labels, value in samples:
            if name == "verbs3_gateway_requests_total" and labels.get("status") == "2xx":
                self.operations[labels["op"]] = self.operations.get(labels["op"], 0) + int(value)


def settled() -> Counts:
    """Counts when no fill is under way any more: read-ahead goes on for a moment after the last byte that was wanted."""
    before = Counts()
    for _ in range(100):
        time.sleep(0.1)
        now = Counts()
        if now.from_store == before.from_store and now.fills == 0:
            return now
        before = now
    raise AssertionError("the store is read on and on, though no client reads")


class Proof:
    """One client's job. `cold` and `hot` are context managers around reads of the same bytes."""

    def __init__(self, client: str, version: str, job: str):
        self.client, self.version, self.job = client, version, job
        self.began = Counts()
        self.shown: set[str] = set()

    @contextmanager
    def cold(self, size: int):
        """The read inside fetches at least SIZE bytes from the store."""
        before = settled()
        yield
        fetched = settled().from_store - before.from_store
        assert fetched >= size, f"{self.client}: a cold read of {size} bytes took {fetched} from the store: what was it served from?"
        self.shown.add("cold")

    @contextmanager
    def hot(self, size: int):
        """The read inside takes nothing from the store, and at least SIZE bytes from the tier."""
        before = settled()
        yield
        after = settled()
        fetched, hit = after.from_store - before.from_store, after.hit_bytes - before.hit_bytes
        assert fetched == 0, f"{self.client}: a hot read took {fetched} bytes from the store"
        assert hit >= size, f"{self.client}: the tier gave {hit} bytes of a hot read of {size}"
        self.shown.add("hot")

    def row(self) -> dict:
        now = Counts()
        grown = {name for name, count in now.operations.items() if count > self.began.operations.get(name, 0)}
        shown = self.shown | {column for column, names in OPERATIONS.items() if names & grown}
        return {"client": self.client, "version": self.version, "job": self.job, "shown": [column for column in COLUMNS if column in shown]}


def write(row: dict) -> None:
    if path := os.environ.get("S3_MATRIX"):
        with open(path, "a", encoding="utf-8") as out:
            out.write(json.dumps(row, sort_keys=True) + "\n")
