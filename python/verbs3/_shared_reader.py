"""The reader that functions of the module share in a process, made at the first need of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

from ._locations import parse_object
from ._process_lock import ProcessLock
from ._reader import Reader, connect


_lock = ProcessLock()
# It goes on in a forked child.
_reader: Reader | None = None


def shared_reader() -> Reader:
    """The reader of this process, with the socket and the keys of the environment.

    >>> bytes(shared_reader().read("train", "hello.txt"))
    b'hello'
    """
    global _reader
    with _lock:
        if _reader is None:
            _reader = connect()
        return _reader


@overload
def exists(urls: str, *, reader: Reader | None = ...) -> bool: ...  # type: ignore[overload-overlap]
@overload
def exists(urls: Iterable[str], *, reader: Reader | None = ...) -> list[bool]: ...


def exists(urls: str | Iterable[str], *, reader: Reader | None = None) -> bool | list[bool]:
    """Says whether there is an object; for several URLs, of each in its place. They are asked together.

    >>> import verbs3
    >>> verbs3.exists("s3://train/hello.txt")
    True
    >>> verbs3.exists(["s3://train/hello.txt", "s3://train/missing.txt"])
    [True, False]
    """
    reader = reader or shared_reader()
    if isinstance(urls, str):
        return reader.exists_many([parse_object(urls)])[0]
    return reader.exists_many([parse_object(url) for url in urls])
