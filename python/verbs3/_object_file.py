"""An object as a file: seekable, buffered, and of one version."""

from __future__ import annotations

import io
import os
from typing import Any

from . import _native
from ._errors import S3Error
from ._reader import Reader
from ._seekable_file import SeekableFile


class ObjectFile(io.BufferedReader):
    """A file over an object. Its size, ETag and URL are known from the beginning.

    Every byte is of the version that was there when it was opened; if that is gone, a read raises
    `S3Error` (`PreconditionFailed`). Reads that are longer than the buffer go past it. A file is of
    one process: a forked child opens its own.
    """

    def __init__(self, raw: RawObjectFile, buffer_bytes: int):
        super().__init__(raw, buffer_bytes)
        self.object = raw
        self.size = raw.size
        self.blocksize = buffer_bytes

    @property
    def name(self) -> str:
        return f"s3://{self.object.bucket}/{self.object.key}"

    @property
    def etag(self) -> str:
        """The ETag of the version that is read."""
        return self.object.etag


def open_object(reader: Reader, bucket: str, key: str, buffer_bytes: int) -> ObjectFile:
    """Opens an object by a HEAD, which says its length and its version."""
    headers = reader.head(bucket, key)
    size, etag = int(headers["content-length"]), headers["etag"]
    raw = RawObjectFile(reader, bucket, key, size, etag)
    # A buffer is allocated whole.
    return ObjectFile(raw, max(1, min(buffer_bytes, size)))


class RawObjectFile(SeekableFile):
    """Reads straight into the caller's buffer."""

    def __init__(self, reader: Reader, bucket: str, key: str, size: int, etag: str):
        super().__init__(size)
        self.bucket, self.key, self.etag = bucket, key, etag
        self._reader = reader
        self._process = os.getpid()

    def readinto(self, target: Any) -> int:
        if self._process != os.getpid():
            raise _native.LendingError("the file was opened by the process that this one was forked from")
        room = memoryview(target).cast("B")[: max(0, self.size - self._at)]
        if not len(room):
            return 0
        filled = self._reader.read_into(
            self.bucket, self.key, room, self._at, if_match=self.etag
        )
        if filled != len(room):
            raise S3Error(416, "InvalidRange", f"s3://{self.bucket}/{self.key} has become shorter", "")
        self._at += filled
        return filled

    def readall(self) -> bytes:
        """Reads all that is left at once, and not in pieces of a buffer."""
        content = bytearray(max(0, self.size - self._at))
        self.readinto(content)
        return bytes(content)
