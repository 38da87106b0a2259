"""Reads that are held against what was written, byte by byte, by one way of the package.

    checked_reads.py WAY SEED

Reads until its standard input ends, then every object once more, and prints one line of JSON: how
much was read, how long the longest read took, what went over HTTP, what failed, and which bytes
were wrong. Socket, endpoint and keys come from the environment.
"""

import collections
import contextlib
import dataclasses
import json
import random
import sys
import threading
import time

BUCKET = "checked"
# Has room for what two threads ask for at once, wherever it lands.
MEMORY = "64MiB"
THREADS, BATCH_BYTES = 2, 10 << 20
# Around pages of memory and of the cache, around blocks; the longest have several blocks.
LENGTHS = [0, 1, 511, 4095, 4096, 4097, 65_537, 262_143, 262_145, 1_000_003, 1 << 20, 2_500_000]
LENGTHS += [3_000_001, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 6_000_000, (8 << 20) + 5, 9_437_189]
# Views that are kept for a while, and held against what was written again; how long they may be.
KEPT, KEPT_BYTES = 64, 65_536
# Answers in pages of workers that are kept. What has no room among them is in lent memory.
PAGES_KEPT = 8
# Failures and wrong answers that are told each, and not only counted.
TOLD_MAX = 20


def write_objects(client):
    """Writes all objects; returns key to bytes. Each byte is said by its key and its place."""
    for key, body in make_objects().items():
        client.put_object(Bucket=BUCKET, Key=key, Body=body)


def make_objects():
    return {f"of-{length}": random.Random(length).randbytes(length) for length in LENGTHS}


@dataclasses.dataclass(frozen=True)
class WantedSlice:
    """`start` and `stop` are `None`: all of the object."""

    key: str
    start: int | None = None
    stop: int | None = None


class WayOfReading:
    """`read_slices` yields what was wanted, in whatever order, and bytes."""

    # How many slices are wanted of it at most.
    at_once = 1
    # How many reads went over HTTP.
    slow = 0

    def let_go(self, kept_max=KEPT):
        """Yields what was kept, but for the last ones."""
        yield from ()


class ReaderAlone(WayOfReading):
    """`Reader`, one object at a time: as a view, or into a buffer."""

    def __init__(self):
        import verbs3

        self._reader = verbs3.connect(memory=MEMORY)
        self._kept = collections.deque()

    def read_slices(self, wanted, chooser):
        for one in wanted:
            if one.start is None:
                yield one, self._reader.read_bytes(BUCKET, one.key)
            elif chooser.random() < 0.7:
                view = self._reader.read(BUCKET, one.key, (one.start, one.stop))
                yield one, bytes(view)
                if len(view) <= KEPT_BYTES:
                    self._kept.append((one, view))
            else:
                target = bytearray(one.stop - one.start)
                count = self._reader.read_into(BUCKET, one.key, target, one.start)
                yield one, bytes(target[:count])

    def let_go(self, kept_max=KEPT):
        with contextlib.suppress(IndexError):
            while len(self._kept) > kept_max:
                one, view = self._kept.popleft()
                yield one, bytes(view)


class ManyReads(ReaderAlone):
    """`Reader.read_many`."""

    at_once = 12

    def read_slices(self, wanted, chooser):
        ranges = [None if one.start is None else (one.start, one.stop) for one in wanted]
        reads = [(BUCKET, one.key, range) for one, range in zip(wanted, ranges, strict=True)]
        for index, view in self._reader.read_many(reads):
            yield wanted[index], bytes(view)
            # Its memory is for the reads behind it.
            del view


class PagesOfWorkers(WayOfReading):
    """`Reader.read_pages`: views of a worker's own memory, which are looked at again later."""

    def __init__(self):
        import verbs3

        self._reader = verbs3.connect(memory=MEMORY, pages=PAGES_KEPT)
        self._kept = collections.deque()

    def read_slices(self, wanted, chooser):
        for one in wanted:
            range = None if one.start is None else (one.start, one.stop)
            views = self._reader.read_pages(BUCKET, one.key, range)
            yield one, b"".join(views)
            self._kept.append((one, views))

    def let_go(self, kept_max=PAGES_KEPT // 2):
        with contextlib.suppress(IndexError):
            while len(self._kept) > kept_max:
                one, views = self._kept.popleft()
                yield one, b"".join(views)


class Files(WayOfReading):
    """The file system: slices together, and open files."""

    at_once = 6

    def __init__(self):
        import fsspec

        self._files = fsspec.filesystem("verbs3", memory=MEMORY)

    def read_slices(self, wanted, chooser):
        if chooser.random() < 0.5:
            paths = [f"{BUCKET}/{one.key}" for one in wanted]
            starts, stops = [one.start for one in wanted], [one.stop for one in wanted]
            got = self._files.cat_ranges(paths, starts, stops, on_error="raise")
            yield from zip(wanted, got, strict=True)
            return
        for one in wanted:
            with self._files.open(f"{BUCKET}/{one.key}") as file:
                start, stop = one.start or 0, file.size if one.stop is None else one.stop
                file.seek(start)
                yield one, file.read(stop - start)


class Boto3(WayOfReading):
    """`verbs3.client`: by lent memory, and by HTTP where the gateway is away."""

    def __init__(self):
        import verbs3
        from botocore.config import Config

        # The quota of newer modes fails without a pause, once a gateway was away often.
        config = Config(proxies={}, retries={"mode": "legacy", "max_attempts": 4})
        self._client = verbs3.client("s3", memory=MEMORY, config=config)

    @property
    def slow(self):
        return self._client.verbs3.slow

    def read_slices(self, wanted, chooser):
        for one in wanted:
            asked = {} if one.start is None else {"Range": f"bytes={one.start}-{one.stop - 1}"}
            yield one, self._client.get_object(Bucket=BUCKET, Key=one.key, **asked)["Body"].read()


WAYS = {"read": ReaderAlone, "read_many": ManyReads, "pages": PagesOfWorkers}
WAYS |= {"files": Files, "boto3": Boto3}


class CheckedReads:
    """Threads that share one reader."""

    def __init__(self, way, seed):
        self._way = WAYS[way]()
        self._seed = seed
        self._objects = make_objects()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._failed = collections.Counter()
        self._told = []
        self._figures = {"reads": 0, "bytes": 0, "longest": 0.0, "wrong": 0}

    def run_until_input_ends(self):
        threads = [threading.Thread(target=self._work, args=(turn,)) for turn in range(THREADS)]
        for thread in threads:
            thread.start()
        print("reading", flush=True)
        sys.stdin.read()
        self._is_over.set()
        for thread in threads:
            thread.join()
        for one, got in self._way.let_go(kept_max=0):
            self._check(one, got)
        slow, failed = self._way.slow, sum(self._failed.values())
        for key in self._objects:
            self._read([WantedSlice(key)], random.Random(self._seed))
        self._figures |= {
            "slow": slow,
            "slow_at_end": self._way.slow - slow,
            "failed_at_end": sum(self._failed.values()) - failed,
        }
        return self._figures | {"failed": self._failed, "told": self._told[:TOLD_MAX]}

    def _work(self, turn):
        chooser = random.Random(f"{self._seed} {turn}")
        while not self._is_over.is_set():
            self._read(self._choose_batch(chooser), chooser)
            for one, got in self._way.let_go():
                self._check(one, got)

    def _choose_batch(self, chooser):
        wanted, expected = [], 0
        for _ in range(chooser.randint(1, self._way.at_once)):
            one = self._choose(chooser)
            wanted.append(one)
            expected += len(self._objects[one.key][one.start : one.stop])
            if expected > BATCH_BYTES:
                break
        return wanted

    def _choose(self, chooser):
        key = chooser.choice(list(self._objects))
        length = len(self._objects[key])
        if not length or chooser.random() < 0.3:
            return WantedSlice(key)
        start = chooser.randrange(length)
        return WantedSlice(key, start, chooser.randint(start + 1, length))

    def _read(self, wanted, chooser):
        began = time.monotonic()
        try:
            answered = 0
            for one, got in self._way.read_slices(wanted, chooser):
                answered += 1
                self._check(one, got)
            if answered != len(wanted):
                raise AssertionError(f"{answered} answers to {len(wanted)} reads")
        except Exception as error:
            with self._lock:
                self._failed[kind_of(error)] += 1
                self._told.append(f"{kind_of(error)}: {error}")
        took = time.monotonic() - began
        with self._lock:
            if took > self._figures["longest"]:
                until = time.strftime("%H:%M:%S", time.gmtime())
                self._figures |= {"longest": took, "longest_was": f"until {until}: {wanted}"}

    def _check(self, one, got):
        expected = self._objects[one.key][one.start : one.stop]
        with self._lock:
            self._figures["reads"] += 1
            self._figures["bytes"] += len(got)
            if got != expected:
                pairs = enumerate(zip(got, expected, strict=False))
                at = next((at for at, (a, b) in pairs if a != b), min(len(got), len(expected)))
                self._figures["wrong"] += 1
                self._told.append(f"{one}: {len(got)} bytes, the first wrong one at {at}")


def kind_of(error):
    """What an error is called: its class, and what S3 calls it."""
    response = getattr(error, "response", None)
    code = response["Error"]["Code"] if isinstance(response, dict) else getattr(error, "code", "")
    return f"{type(error).__name__} {code}".strip()


if __name__ == "__main__":
    way, seed = sys.argv[1:]
    reads = CheckedReads(way, seed)
    print(json.dumps(reads.run_until_input_ends()))
