"""Reads into lent memory: one at a time, many at once, into a buffer of the caller's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _native
from ._asking import (
    DOCUMENT_BYTES,
    ReadRange,
    bytes_of,
    copy_answer,
    describe_read,
    etag_of_answer,
    headers_of,
    view_of_answer,
    views_of_answer,
)
from ._credentials import find_credentials, find_region
from ._errors import S3Error, error_of_answer
from ._locations import find_socket
from ._verdicts import HitRate

if TYPE_CHECKING:
    from ._object_file import ObjectFile

# A longer buffer is filled by several reads at once.
PIECE_BYTES = 4 << 20
# Most answers in pages of workers, by the protocol.
PAGES_MAX = 4096
# Seconds that a thread looks for an answer: by default, and at most.
POLL_FOR, POLL_FOR_MAX = 0.0001, 0.001


@dataclass(frozen=True)
class ConnectArguments:
    """What `connect` was called with. A reader that is sent to another process connects there."""

    socket: str | None
    access_key: str | None
    secret_key: str | None
    region: str | None
    memory: int | str
    reads_max: int
    reconnect_for: float
    read_for: float
    pin_for: str | None = None
    pages: int = 0
    poll_for: float = POLL_FOR

    def __repr__(self) -> str:
        return f"ConnectArguments(socket={self.socket!r}, access_key={self.access_key!r})"


def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    region: str | None = None,
    memory: int | str = "64MiB",
    reads_max: int = 64,
    reconnect_for: float = 30.0,
    read_for: float = 60.0,
    pin_for: str | None = None,
    pages: int = 0,
    poll_for: float = POLL_FOR,
) -> Reader:
    """Connects to the gateway of this host and lends it memory.

    `socket`: `VERBS3_SOCKET`, else `/run/verbs3/gateway.sock`. It has to be the path that the
    gateway was configured with. Without keys, those that boto3 would take. `memory` holds what is
    being read and what views are left of: about as much as you keep at once, and 16 KiB for each of
    `reads_max`. A gateway that restarts is waited for `reconnect_for` seconds; what was in flight
    is repeated. An answer is waited for `read_for` seconds. With `pin_for`
    (`"cuda"`, `"cuda:1"`) the driver pins the memory: what is copied from a view to a GPU makes no
    stop in memory of the driver's own. **Keep a view until such a copy is done**, or copy without
    `non_blocking`: the next object lands where a released one was. Forked children lend theirs as it
    is. `pages`: how many answers of `read_pages` are kept at once. `poll_for`: how many seconds a
    thread looks for an answer before it sleeps, where the last answers came as fast; whatever else
    could run meanwhile does. 0: never.

    >>> reader = connect(memory="16MiB")
    >>> bytes(reader.read("train", "hello.txt"))
    b'hello'
    """
    path = None if socket is None else os.fspath(socket)
    return connect_as(
        ConnectArguments(
            path, access_key, secret_key, region, memory, reads_max, reconnect_for, read_for, pin_for, pages, poll_for
        )
    )


def connect_as(asked: ConnectArguments) -> Reader:
    """Connects as `connect` was asked to."""
    if not 0 <= asked.poll_for <= POLL_FOR_MAX:
        raise ValueError(f"poll_for is from 0 to {POLL_FOR_MAX} seconds, and not {asked.poll_for}")
    if not 0 <= asked.pages <= PAGES_MAX:
        raise ValueError(f"pages is from 0 to {PAGES_MAX}, and not {asked.pages}")
    found = find_credentials(asked.access_key, asked.secret_key)
    device = _find_cuda_device(asked.pin_for)
    if device is not None:
        # "cuda" is this process's: a worker that gets the reader must not make a context elsewhere.
        asked = replace(asked, pin_for=f"cuda:{device}")
    native = _native.NativeClient(
        find_socket(asked.socket),
        found.access_key,
        found.secret_key,
        region=find_region(asked.region),
        memory_bytes=bytes_of(asked.memory),
        reads_max=asked.reads_max,
        reconnect_for=asked.reconnect_for,
        read_for=asked.read_for,
        page_loans=asked.pages,
        poll_for=asked.poll_for,
        cuda_device=device,
    )
    return Reader(native, asked)


def _find_cuda_device(name: str | None) -> int | None:
    """The number of a device as torch names it; `"cuda"` is torch's current one, else the first."""
    if name is None:
        return None
    kind, _, number = str(name).partition(":")
    if kind != "cuda" or len(number) > 4 or not (number.isdecimal() or str(name) == kind):
        raise ValueError(f"pin_for is 'cuda' or 'cuda:NUMBER', and not {name!r}")
    if number:
        return int(number)
    torch = sys.modules.get("torch")
    # In a child of a process that has CUDA nothing is pinned, by whatever device.
    if torch is None or torch.cuda._is_in_bad_fork() or not torch.cuda.is_available():
        return 0
    return int(torch.cuda.current_device())


class Reader:
    """Reads objects into memory that this process lends. Threads may share it.

    After a fork the child connects anew at its first read. Views of the parent are the parent's. A
    reader that is pickled connects anew where it is unpickled, with the keys that were given to
    `connect`; keys that it found are found again there.
    """

    def __init__(self, native: _native.NativeClient, asked: ConnectArguments | None = None):
        self._native = native
        self._asked = asked

    def __reduce__(self) -> tuple[Any, ...]:
        if self._asked is None:
            raise TypeError("the reader of a boto3 client can't be pickled; use verbs3.connect")
        return connect_as, (self._asked,)

    def __repr__(self) -> str:
        known = asdict(self._asked) if self._asked else {}
        return f"Reader(socket={find_socket(known.get('socket'))!r})"

    @overload
    def read(
        self, bucket: str, key: str, range: ReadRange = ..., *, if_match: str | None = ...
    ) -> memoryview: ...
    @overload
    def read(
        self, bucket: str, key: str, range: ReadRange = ..., *, into: Any, if_match: str | None = ...
    ) -> int: ...

    def read(
        self,
        bucket: str,
        key: str,
        range: ReadRange = None,
        *,
        into: Any = None,
        if_match: str | None = None,
    ) -> memoryview | int:
        """Reads an object, or a range of one: `(start, stop)`, `(start, None)`, or `"bytes=…"`.

        Returns a read-only view of where the bytes have landed. Its memory is used again when the
        last view of it is released or gone. With `into`, a writable buffer, the bytes are copied to
        its beginning, and their number is returned.

        >>> reader = connect()
        >>> bytes(reader.read("train", "hello.txt", (1, 4)))
        b'ell'
        """
        headers, expected = describe_read(range, if_match)
        if into is None:
            return view_of_answer(self._native.read(False, bucket, key, headers, expected))
        expected = max(memoryview(into).nbytes, DOCUMENT_BYTES)
        return copy_answer(self._native.read(False, bucket, key, headers, expected), into)

    def read_pages(
        self, bucket: str, key: str, range: ReadRange = None, *, if_match: str | None = None
    ) -> list[memoryview]:
        """Reads without any copy: read-only views of the pages in which a worker of this host has it.

        The views are the object, one behind the other: often one, and one for each 256 KiB or more of a
        long object. They keep the worker's pages until the last of them is released or gone. What is
        not in pages that this process may map is copied, as `read` does: where the gateway has no
        `gateway.lending.pages_total`, where `connect` had no `pages`, or where the bytes come from
        elsewhere.

        >>> reader = connect(pages=16)
        >>> b"".join(reader.read_pages("train", "hello.txt"))
        b'hello'
        """
        headers, expected = describe_read(range, if_match)
        answer = self._native.read(False, bucket, key, headers, expected, takes_pages=True)
        return views_of_answer(answer)

    def write(
        self,
        bucket: str,
        key: str,
        data: Any,
        *,
        content_type: str | None = None,
        if_none_match: bool = False,
    ) -> str:
        """Writes an object by one request, and returns its ETag.

        `data` is a contiguous buffer: bytes, a NumPy array, a CPU tensor's. It is copied into the lent
        memory, which has to have room for all of it: `MemoryFull`. With `if_none_match` the object
        must not be there yet: `S3Error`, with status 412. After any other `LendingError` nobody knows
        whether the object was written.

        >>> reader = connect()
        >>> etag = reader.write("train", "hello.txt", b"hello")
        >>> bytes(reader.read("train", "hello.txt", if_match=etag))
        b'hello'
        """
        view = memoryview(data).cast("B")
        headers = [("if-none-match", "*")] if if_none_match else []
        if content_type is not None:
            headers.append(("content-type", content_type))
        writer = self._native.begin_write(len(view), "crc64nvme", waits=True)
        writer.append(view)
        return etag_of_answer(writer.finish(bucket, key, None, headers))

    @overload
    def read_many(
        self, reads: Iterable[tuple[Any, ...]], *, errors: Literal["raise"] = ...
    ) -> Iterator[tuple[int, memoryview]]: ...
    @overload
    def read_many(
        self, reads: Iterable[tuple[Any, ...]], *, errors: Literal["return"]
    ) -> Iterator[tuple[int, memoryview | S3Error]]: ...

    def read_many(
        self, reads: Iterable[tuple[Any, ...]], *, errors: Literal["raise", "return"] = "raise"
    ) -> Iterator[tuple[int, Any]]:
        """Reads `(bucket, key)`, `(bucket, key, range)` or `(bucket, key, range, if_match)`.

        Yields index and view in the order of arrival. Views that are kept keep their memory; if
        none is left, the reads behind them wait for the next step of the iteration. An error of S3
        ends the iteration, or with `errors="return"` takes the place of its view.

        >>> reader = connect()
        >>> keys = ["hello.txt", "missing.txt"]
        >>> found = reader.read_many([("train", key) for key in keys], errors="return")
        >>> sorted((keys[index], type(answer).__name__) for index, answer in found)
        [('hello.txt', 'memoryview'), ('missing.txt', 'S3Error')]
        """
        return _iterate_views(self._begin_reads(reads, errors), errors)

    def _begin_reads(self, reads: Iterable[tuple[Any, ...]], errors: str) -> _native.NativeBatch:
        """Begins what `read_many` reads; `take_view` takes it."""
        if errors not in ("raise", "return"):
            raise ValueError(f"errors is 'raise' or 'return', and not {errors!r}")
        batch = self._native.begin_batch()
        for bucket, key, *rest in reads:
            range, if_match, *_ = *rest, None, None
            headers, expected = describe_read(range, if_match)
            batch.add(bucket, key, headers, expected)
        return batch

    def read_into(
        self, bucket: str, key: str, target: Any, start: int = 0, *, if_match: str | None = None
    ) -> int:
        """Fills a writable buffer from an object's byte `start` on, by several reads at once.

        Returns how many bytes there were: fewer than the buffer has, at the object's end. The
        buffer may be longer than the lent memory. All bytes are of one version of the object, which
        `if_match` (an ETag) may name; else it is the version that the first answer shows.

        >>> reader, target = connect(), bytearray(4)
        >>> reader.read_into("train", "hello.txt", target, 1), target
        (4, bytearray(b'ello'))
        """
        buffer = memoryview(target).cast("B")
        if not len(buffer):
            return 0
        if len(buffer) > PIECE_BYTES and if_match is None:
            if_match = self.head(bucket, key)["etag"]
        starts = range(0, len(buffer), PIECE_BYTES)
        batch = self._native.begin_batch()
        for at in starts:
            stop = min(at + PIECE_BYTES, len(buffer))
            batch.add(bucket, key, *describe_read((start + at, start + stop), if_match))
        filled = 0
        while (answer := batch.next()) is not None:
            index, (status, answered, body) = answer
            if status == 416:
                continue  # The object ends before this piece.
            at = starts[index]
            room = buffer[at : at + PIECE_BYTES]
            filled += copy_answer((status, answered, body), room)
            # Free before the next answer is waited for.
            del answer, body
        return filled

    def read_bytes(self, bucket: str, key: str, *, if_match: str | None = None) -> bytes:
        """Reads a whole object of any length into bytes of its own.

        >>> connect().read_bytes("train", "hello.txt")
        b'hello'
        """
        try:
            view = self.read(bucket, key, if_match=if_match)
        except _native.MemoryFull:
            return self._read_in_pieces(bucket, key, if_match)
        with view:
            return bytes(view)

    def _read_in_pieces(self, bucket: str, key: str, if_match: str | None) -> bytes:
        import io

        headers = self.head(bucket, key)
        # BytesIO gives its bytes away without a copy if they are as long as it is.
        made = io.BytesIO(bytes(int(headers["content-length"])))
        with made.getbuffer() as target:
            filled = self.read_into(bucket, key, target, if_match=if_match or headers["etag"])
        return made.getvalue()[:filled]

    def open(self, bucket: str, key: str, *, buffer_bytes: int = 1 << 20) -> ObjectFile:
        """Opens an object as a buffered, seekable file of one version.

        >>> with connect().open("train", "hello.txt") as file:
        ...     file.seek(1), file.read(3)
        (1, b'ell')
        """
        from ._object_file import open_object

        return open_object(self, bucket, key, buffer_bytes)

    def head(self, bucket: str, key: str) -> dict[str, str]:
        """Returns an object's headers, by their lower-case names.

        >>> connect().head("train", "hello.txt")["content-length"]
        '5'
        """
        status, answered, body = self._native.read(True, bucket, key, [], 0)
        headers = headers_of(answered)
        if status >= 300:
            raise error_of_answer(status, headers, bytes(body))
        return headers

    def head_many(self, objects: Iterable[tuple[str, str]]) -> list[dict[str, str] | None]:
        """Returns the headers of many `(bucket, key)`, in their order; `None`: there is no such object.

        >>> found = connect().head_many([("train", "hello.txt"), ("train", "missing.txt")])
        >>> found[0]["content-length"], found[1]
        ('5', None)
        """
        asked = objects if isinstance(objects, list) else list(objects)
        found: list[dict[str, str] | None] = []
        for status, answered in self._native.head_answers(asked):
            headers = headers_of(answered)
            if status >= 300 and status != 404:
                raise error_of_answer(status, headers, b"")
            found.append(headers if status < 300 else None)
        return found

    def exists_many(self, objects: Iterable[tuple[str, str]]) -> list[bool]:
        """Says of many `(bucket, key)`, in their order, whether there is such an object.

        They are asked together, and only their statuses come back. What can't be known is an error.

        >>> connect().exists_many([("train", "hello.txt"), ("train", "missing.txt")])
        [True, False]
        """
        asked = objects if isinstance(objects, list) else list(objects)
        statuses = self._native.head_statuses(asked)
        found = [status == 200 for status in statuses]
        if not all(found):
            self._raise_unknown(asked, statuses)
        return found

    def _raise_unknown(self, asked: Sequence[tuple[str, str]], statuses: list[int]) -> None:
        for (bucket, key), status in zip(asked, statuses, strict=True):
            if status not in (200, 404):
                # Asks again, for the error with all that S3 says of it.
                self.head(bucket, key)
                raise S3Error(status, str(status), f"s3://{bucket}/{key} was refused once", "")

    def hit_rate(self) -> HitRate:
        """Counts what the cache did for the GETs of this reader."""
        return HitRate(*self._native.cache_verdicts())


def take_view(batch: _native.NativeBatch, errors: str) -> tuple[int, memoryview | S3Error] | None:
    """The next view of a batch, with its index. `None`: there is none left."""
    answer = batch.next()
    if answer is None:
        return None
    index, parts = answer
    try:
        return index, view_of_answer(parts)
    except S3Error as error:
        if errors == "raise":
            raise
        return index, error


def _iterate_views(
    batch: _native.NativeBatch, errors: str
) -> Iterator[tuple[int, memoryview | S3Error]]:
    while (answer := take_view(batch, errors)) is not None:
        yield answer
        # What the caller has not kept is free before the next read is waited for.
        del answer
