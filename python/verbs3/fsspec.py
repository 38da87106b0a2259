"""A file system of fsspec: `verbs3://BUCKET/KEY`. Reads go by lent memory, all else by boto3.

>>> import fsspec
>>> with fsspec.open("verbs3://train/hello.txt") as file:
...     file.read()
b'hello'

pandas, pyarrow, zarr and dask take such URLs once the package is installed. The options are those
of `Verbs3FileSystem`, as `storage_options`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Any, cast

from fsspec.spec import AbstractFileSystem

from ._bucket_listing import BucketListing, translate_error
from ._errors import S3Error
from ._gateway_client import GatewayClient
from ._locations import SCHEMES
from ._native import MemoryFull
from ._object_upload import PART_BYTES, ObjectUpload
from ._process_lock import ProcessLock
from ._reader import ConnectArguments, Reader, connect_as

__all__ = ["Verbs3FileSystem"]

_COPIED_BYTES = 16 << 20


class Verbs3FileSystem(BucketListing, AbstractFileSystem):  # type: ignore[misc]
    """Buckets as folders, through the gateway of this host.

    Nothing of a listing is kept: what was written by others is seen. An open file is of one
    version. A file that is written is there when it is closed, and whole; one whose block ends with
    an exception never is, nor one that nobody has closed. Instances can be pickled, and used after
    a fork.

    `socket`, `memory`, `reads_max`: as in `verbs3.connect`. `endpoint_url`: the gateway's, for
    listings and writes (`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, else `http://127.0.0.1:9000`).
    `key`, `secret`: an access key; without it, the one that boto3 would take.

    >>> files = Verbs3FileSystem()
    >>> files.cat("train/hello.txt")
    b'hello'
    >>> files.ls("train", detail=False)
    ['train/hello.txt', 'train/shard-00.tar', 'train/weights.safetensors']
    """

    protocol = ("verbs3",)
    root_marker = ""

    def __init__(
        self,
        socket: str | None = None,
        endpoint_url: str | None = None,
        key: str | None = None,
        secret: str | None = None,
        memory: int | str = "64MiB",
        reads_max: int = 64,
        **others: Any,
    ):
        super().__init__(**others)
        self._asked = ConnectArguments(socket, key, secret, None, memory, reads_max, 30.0, 60.0)
        self._reader: Reader | None = None
        self._connecting = ProcessLock()
        self.gateway = GatewayClient(endpoint_url, key, secret, lend=lambda: self.reader._native)

    @property
    def reader(self) -> Reader:
        """The reader that all files of this file system share, connected at the first read."""
        with self._connecting:
            if self._reader is None:
                self._reader = connect_as(self._asked)
            return self._reader

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(path)
        for scheme in SCHEMES:
            path = path.removeprefix(scheme)
        return path.strip("/")

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **others: Any,
    ) -> Any:
        bucket, key = self._split_object(path)
        if mode == "rb":
            with translate_error(path):
                return self.reader.open(bucket, key, buffer_bytes=block_size or 1 << 20)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"objects are opened as 'rb', 'wb' or 'xb', and not as {mode!r}")
        return ObjectUpload(
            self, path, mode, max(block_size or 0, PART_BYTES), autocommit=autocommit, **others
        )

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Returns an object's bytes, or those of a slice of it."""
        if start is None and end is None:
            with translate_error(path):
                return self.reader.read_bytes(*self._split_object(path))
        return cast(bytes, self.cat_ranges([path], [start], [end], on_error="raise")[0])

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **_: Any
    ) -> bytes | dict[str, Any]:
        """Returns one object's bytes, or those of several, by their paths; these are read together."""
        paths = self.expand_path(path)
        if recursive:
            paths = sorted({name for one in paths for name in self.find(one)})
        elif isinstance(path, str) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0])
        found = self._read_all(paths, [None] * len(paths))
        shown: dict[str, Any] = {}
        for one, answer in zip(paths, found, strict=True):
            if isinstance(answer, bytes) or on_error == "return":
                shown[one] = answer
            elif on_error == "raise":
                raise answer
        return shown

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Returns the bytes of many slices, which are read together; negative numbers as in Python."""
        if not isinstance(starts, Iterable):
            starts = [starts] * len(paths)
        if not isinstance(ends, Iterable):
            ends = [ends] * len(paths)
        ranges = [
            self._range_of(path, start, end)
            for path, start, end in zip(paths, starts, ends, strict=True)
        ]
        found = self._read_all([self._strip_protocol(path) for path in paths], ranges)
        if on_error == "raise":
            for answer in found:
                if isinstance(answer, Exception):
                    raise answer
        return found

    def _range_of(self, path: str, start: int | None, end: int | None) -> Any:
        """A slice as a range. `()`: it is empty. An error: its object has no length."""
        if start is None and end is None:
            return None
        if start is not None and start < 0 and end is None:
            return f"bytes={start}"
        if (start or 0) < 0 or (end or 0) < 0:
            try:
                size = self.info(path)["size"]
            except (OSError, S3Error) as error:
                return error
            start, end, _ = slice(start, end).indices(size)
        start = start or 0
        if end is not None and end <= start:
            return ()
        return start, end

    def _read_all(self, paths: list[str], ranges: list[Any]) -> list[bytes | Exception]:
        """Reads all in one batch. An error takes the place of its bytes."""
        found: list[Any] = [_known_answer(wanted) for wanted in ranges]
        asked = [index for index, answer in enumerate(found) if answer is None]
        reads = [(*self._split_object(paths[index]), ranges[index]) for index in asked]
        try:
            for at, answer in self.reader.read_many(reads, errors="return"):
                index = asked[at]
                found[index] = self._keep_answer(paths[index], answer)
        except MemoryFull:
            # Longer than the lent memory: one after the other, in pieces.
            for index in asked:
                if found[index] is None:
                    found[index] = self._read_long(paths[index], ranges[index])
        return found

    def _keep_answer(self, path: str, answer: memoryview | S3Error) -> bytes | Exception:
        if isinstance(answer, memoryview):
            return bytes(answer)
        if answer.status == 416:
            return b""  # A slice behind the end, as in Python.
        try:
            with translate_error(path):
                raise answer
        except (OSError, S3Error) as error:
            return error

    def _read_long(self, path: str, wanted: Any) -> bytes | Exception:
        try:
            with self._open(path) as file:
                if isinstance(wanted, str):
                    file.seek(int(wanted.removeprefix("bytes=")), 2)
                    return cast(bytes, file.read())
                start, stop = wanted or (0, None)
                file.seek(start)
                return cast(bytes, file.read(-1 if stop is None else stop - start))
        except (OSError, S3Error) as error:
            return error

    def exists_many(self, paths: Iterable[str]) -> list[bool]:
        """Says of many objects whether they are there, in their order. Folders are no objects."""
        return self.reader.exists_many([self._split_object(path) for path in paths])

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, **others: Any) -> None:
        """Copies an object into a local file."""
        try:
            source = self._open(rpath)
        except FileNotFoundError:
            if not self.isdir(rpath):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        piece = bytearray(_COPIED_BYTES)
        with source, open(lpath, "wb") as file:
            if callback is not None:
                callback.set_size(source.size)
            while count := source.object.readinto(piece):
                file.write(memoryview(piece)[:count])
                if callback is not None:
                    callback.relative_update(count)

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = None, mode: str = "overwrite", **others: Any
    ) -> None:
        """Copies a local file into an object."""
        if os.path.isdir(lpath):
            return
        if mode == "create":
            with open(lpath, "rb") as source, self._open(rpath, "xb") as target:
                shutil.copyfileobj(source, target, PART_BYTES)
            return
        moved = None if callback is None else callback.relative_update
        if callback is not None:
            callback.set_size(os.path.getsize(lpath))
        with translate_error(rpath):
            bucket, key = self._split_object(rpath)
            self.gateway.boto.upload_file(os.fspath(lpath), bucket, key, Callback=moved)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **others: Any) -> None:
        """Writes an object; with `mode="create"`, only where there is none."""
        with self._open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def _split_object(self, path: str) -> tuple[str, str]:
        bucket, _, key = self._strip_protocol(path).partition("/")
        if not bucket or not key:
            raise IsADirectoryError(f"{path!r} names no object: it is not BUCKET/KEY")
        return bucket, key


def _known_answer(wanted: Any) -> bytes | Exception | None:
    """What is known of a slice before anything is read. `None`: nothing."""
    if isinstance(wanted, Exception):
        return wanted
    return b"" if wanted == () else None
