"""Reads into lent memory: one at a time, many at once, into a buffer of the caller's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from . import _native
from ._credentials import find_credentials, find_region, find_socket
from ._errors import error_of_answer

# How long an object is taken to be whose length nobody has said. A longer one takes a second try.
EXPECTED_BYTES = 1 << 20
# Room for an error's document, where a range says how much is wanted.
DOCUMENT_BYTES = 8192

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}

Range = tuple[int, int] | str | None


def connect(
    socket: str | os.PathLike | None = None,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    region: str | None = None,
    memory: int | str = "64MiB",
    reads_max: int = 64,
    reconnect_for: float = 30.0,
    read_for: float = 60.0,
) -> Reader:
    """Connects to the gateway of this host and lends it memory.

    `socket`: `VERBS3_SOCKET`, else `/run/verbs3/gateway.sock`. It has to be the path that the
    gateway was configured with. Without keys, those that boto3 would take. `memory` holds what is
    being read and what views are left of: about as much as you keep at once, and 16 KiB for each of
    `reads_max`. A gateway that restarts is waited for `reconnect_for` seconds; what was in flight
    is repeated. An answer is waited for `read_for` seconds.
    """
    found = find_credentials(access_key, secret_key)
    native = _native.NativeClient(
        find_socket(socket),
        found.access_key,
        found.secret_key,
        region=find_region(region),
        memory_bytes=bytes_of(memory),
        reads_max=reads_max,
        reconnect_for=reconnect_for,
        read_for=read_for,
    )
    return Reader(native)


class Reader:
    """Reads objects into memory that this process lends. Threads may share it.

    After a fork the child connects anew at its first read. Views of the parent are the parent's.
    """

    def __init__(self, native: _native.NativeClient):
        self._native = native

    def read(
        self,
        bucket: str,
        key: str,
        range: Range = None,
        *,
        into: Any = None,
        if_match: str | None = None,
    ) -> memoryview | int:
        """Reads an object, or a range of one: `(start, stop)`, or HTTP's `"bytes=…"`.

        Returns a read-only view of where the bytes have landed. Its memory is used again when the
        last view of it is released or gone. With `into`, a writable buffer, the bytes are copied to
        its beginning, and their number is returned.
        """
        headers, expected = _ask(range, if_match)
        if into is not None:
            expected = max(memoryview(into).nbytes, DOCUMENT_BYTES)
        status, answered, body = self._native.read(False, bucket, key, headers, expected)
        return _deliver(status, answered, body, into)

    def read_many(self, reads: Iterable[tuple]) -> Iterator[tuple[int, memoryview]]:
        """Reads `(bucket, key)` or `(bucket, key, range)`, many at once.

        Yields index and view in the order of arrival. Views that are kept keep their memory; if
        none is left, the reads behind them wait for the next step of the iteration.
        """
        batch = self._native.begin_batch()
        for bucket, key, *rest in reads:
            headers, expected = _ask(rest[0] if rest else None, None)
            batch.add(bucket, key, headers, expected)
        return _answers(batch)

    def head(self, bucket: str, key: str) -> dict[str, str]:
        """Returns an object's headers, by their lower-case names."""
        status, answered, body = self._native.read(True, bucket, key, [], 0)
        headers = headers_of(answered)
        if status >= 300:
            raise error_of_answer(status, headers, bytes(body))
        return headers


def _answers(batch: _native.NativeBatch) -> Iterator[tuple[int, memoryview]]:
    while (answer := batch.next()) is not None:
        index, (status, answered, body) = answer
        view = _deliver(status, answered, body, None)
        del answer, body
        yield index, view
        # What the caller has not kept is free before the next read is waited for.
        del view


def _deliver(status: int, answered: list, body: _native.NativeBody, into: Any) -> memoryview | int:
    if status >= 300:
        raise error_of_answer(status, headers_of(answered), bytes(body))
    if into is None:
        return memoryview(body)
    target = memoryview(into).cast("B")
    if len(target) < len(body):
        raise ValueError(f"the object has {len(body)} bytes, and there is room for {len(target)}")
    body.copy_into(target[: len(body)])
    return len(body)


def _ask(range: Range, if_match: str | None) -> tuple[list[tuple[str, str]], int]:
    headers = [] if if_match is None else [("if-match", if_match)]
    if range is None:
        return headers, EXPECTED_BYTES
    if isinstance(range, str):
        return [*headers, ("range", range)], expected_bytes(range)
    start, stop = range
    if not 0 <= start < stop:
        raise ValueError(f"the range {start}..{stop} holds no byte")
    return [*headers, ("range", f"bytes={start}-{stop - 1}")], max(stop - start, DOCUMENT_BYTES)


def expected_bytes(range_header: str) -> int:
    """How long the answer to a range is at most."""
    first, dash, last = range_header.removeprefix("bytes=").partition("-")
    if dash and last.isdigit() and (not first or first.isdigit()):
        wanted = int(last) - int(first) + 1 if first else int(last)
        return max(wanted, DOCUMENT_BYTES)
    return EXPECTED_BYTES


def headers_of(answered: list[tuple[str, bytes]]) -> dict[str, str]:
    """Headers as HTTP's clients show them; one that came several times is one with commas."""
    headers: dict[str, str] = {}
    for name, value in answered:
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def bytes_of(size: int | str) -> int:
    """A number of bytes, or such a text as `"64MiB"`."""
    if isinstance(size, int):
        return size
    for unit, factor in _UNITS.items():
        if size.endswith(unit):
            return int(size.removesuffix(unit)) * factor
    raise ValueError(f"{size!r} is no size such as '64MiB'")
