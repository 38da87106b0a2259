"""Reads for asyncio. A bounded number of threads waits for answers; none is made for a read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

from . import _native
from ._asking import ReadRange
from ._errors import S3Error
from ._process_lock import ProcessLock
from ._reader import Reader, connect, take_view

_Found = TypeVar("_Found")


class AsyncReader:
    """A reader whose waits are awaited. Tasks and event loops may share it.

    At most `threads` answers are waited for at once; the reads behind them wait for their turn. A
    `read_many` takes one thread, however many reads it has. A task that is cancelled gives its read
    up: what has not begun never does, and what lands has its memory used again at once. A forked
    child has threads of its own.

    >>> async def read_hello():
    ...     async with AsyncReader() as reader:
    ...         return bytes(await reader.read("train", "hello.txt"))
    >>> asyncio.run(read_hello())
    b'hello'
    """

    def __init__(self, reader: Reader | None = None, *, threads: int = 16, **connecting: Any):
        """Takes a reader, or what `connect` takes: it then connects here, and may wait for that."""
        if threads < 1:
            raise ValueError(f"{threads} threads read nothing")
        if reader is not None and connecting:
            raise ValueError("a reader is connected already: give reader, or what connect takes")
        self.reader = reader or connect(**connecting)
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._lock = ProcessLock()
        self._is_closed = False

    async def __aenter__(self) -> AsyncReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the threads, once what they wait for is there. Views stay."""
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(pool.shutdown)

    async def read(
        self, bucket: str, key: str, range: ReadRange = None, *, if_match: str | None = None
    ) -> memoryview:
        """Reads an object or a range of one, as `Reader.read` does."""
        return await self._wait(lambda: self.reader.read(bucket, key, range, if_match=if_match))

    async def read_into(
        self, bucket: str, key: str, target: Any, start: int = 0, *, if_match: str | None = None
    ) -> int:
        """Fills a buffer, as `Reader.read_into` does.

        A thread may still write into the buffer after its task was cancelled: give up the buffer,
        too, or wait until the reader is closed.
        """
        return await self._wait(
            lambda: self.reader.read_into(bucket, key, target, start, if_match=if_match)
        )

    async def head(self, bucket: str, key: str) -> dict[str, str]:
        """Returns an object's headers, by their lower-case names."""
        return await self._wait(lambda: self.reader.head(bucket, key))

    async def exists_many(self, objects: Iterable[tuple[str, str]]) -> list[bool]:
        """Says of many `(bucket, key)` whether there is such an object."""
        asked = list(objects)
        return await self._wait(lambda: self.reader.exists_many(asked))

    async def read_many(
        self, reads: Iterable[tuple[Any, ...]], *, errors: Literal["raise", "return"] = "raise"
    ) -> AsyncIterator[tuple[int, Any]]:
        """Reads many at once, as `Reader.read_many` does.

        >>> async def read_both():
        ...     async with AsyncReader() as reader:
        ...         reads = [("train", "hello.txt", (at, at + 1)) for at in range(2)]
        ...         return sorted([(i, bytes(view)) async for i, view in reader.read_many(reads)])
        >>> asyncio.run(read_both())
        [(0, b'h'), (1, b'e')]
        """
        batch = self.reader._begin_reads(reads, errors)
        answer: tuple[int, memoryview | S3Error] | None = None
        try:
            while (answer := await self._wait(partial(take_view, batch, errors))) is not None:
                yield answer
                # What the caller has not kept is free before the next read is waited for.
                answer = None
        finally:
            # A task that is kept after its end keeps its frames: no memory with them.
            del batch, answer

    async def _wait(self, read: Callable[[], _Found]) -> _Found:
        waited = asyncio.wrap_future(self._find_pool().submit(read))
        # A cancelled task that is kept keeps this frame, too.
        del read
        return await waited

    def _find_pool(self) -> ThreadPoolExecutor:
        if self._is_closed:
            raise _native.LendingError("the reader is closed")
        with self._lock:
            if self._pool is None or self._process != os.getpid():
                self._pool = ThreadPoolExecutor(self._threads, "verbs3-read")
                self._process = os.getpid()
            return self._pool
