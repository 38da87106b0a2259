"""Writes an object in one request or in parts. It is there whole, or not at all."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from fsspec.spec import AbstractBufferedFile

from ._bucket_listing import translate_error

PART_BYTES = 8 << 20
# Smallest part of S3 that is not the last one.
PART_BYTES_MIN = 5 << 20
# Most parts of one object. Parts grow, so that 300 GB fit into them.
PARTS_MAX = 10_000


class ObjectUpload(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is written. Its bytes are kept until there are enough for a part."""

    closed: bool

    def __init__(self, fs: Any, path: str, mode: str, block_size: int, **others: Any):
        # fsspec knows no "x": to it this is a file that is written.
        super().__init__(fs, path, "wb", block_size, **others)
        self._is_new = mode == "xb"
        self._bucket, self._key = fs._split_object(path)
        self._upload_id: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._rest: bytes | None = None
        self._opened_under = sys.exc_info()[1]
        # A forked child has a copy: neither its end nor its `close` is the upload's.
        self._process = os.getpid()

    def _initiate_upload(self) -> None:
        """The first part begins the upload. What fits in one is written by one request."""

    def _upload_chunk(self, final: bool = False) -> bool:
        at, wanted = 0, self._part_bytes()
        end = self.buffer.seek(0, 2)
        # A rest too short to be a part goes with the one before it.
        while end - at >= wanted + (0 if final else PART_BYTES_MIN):
            self._upload_part(self._copy_buffered(at, at + wanted))
            at += wanted
        if final:
            self._rest = self._copy_buffered(at, end)
            if self.autocommit:
                self.commit()
            return True
        if not at:
            return False
        kept = self._copy_buffered(at, end)
        # What fsspec does after a chunk that took all, but for the bytes that are left.
        self.offset += at
        self.buffer.seek(0)
        self.buffer.truncate()
        self.buffer.write(kept)
        return False

    def _copy_buffered(self, begin: int, end: int) -> bytes:
        """No view of the buffer outlives this: one that an exception's frames keep ends Python 3.12.1
        when it is collected (cpython issue 111049)."""
        with self.buffer.getbuffer() as data, data[begin:end] as part:
            return bytes(part)

    def _part_bytes(self) -> int:
        """Parts grow by and by: the last quarter of 10,000 has parts of eight times the length."""
        return int(self.blocksize * 2 ** (len(self._parts) * 4 // PARTS_MAX))

    def _upload_part(self, data: bytes) -> None:
        boto = self.fs.gateway.boto
        where = {"Bucket": self._bucket, "Key": self._key}
        with translate_error(self.path):
            if self._upload_id is None:
                self._upload_id = boto.create_multipart_upload(**where)["UploadId"]
            number = len(self._parts) + 1
            answered = boto.upload_part(
                **where, UploadId=self._upload_id, PartNumber=number, Body=data
            )
        part = {"PartNumber": number, "ETag": answered["ETag"]}
        for name in answered:
            if name.startswith("Checksum") and name != "ChecksumType":
                part[name] = answered[name]
        self._parts.append(part)

    def commit(self) -> None:
        """Makes the object visible."""
        rest, self._rest = self._rest, None
        boto = self.fs.gateway.boto
        where = {"Bucket": self._bucket, "Key": self._key}
        condition = {"IfNoneMatch": "*"} if self._is_new else {}
        with translate_error(self.path):
            if self._upload_id is None:
                boto.put_object(**where, Body=rest or b"", **condition)
                return
            if rest:
                self._upload_part(rest)
            boto.complete_multipart_upload(
                **where, UploadId=self._upload_id, MultipartUpload={"Parts": self._parts}, **condition
            )
            self._upload_id = None

    def discard(self) -> None:
        """Gives the upload up. Nothing of it is ever visible."""
        self._rest = None
        upload_id, self._upload_id = self._upload_id, None
        if upload_id is not None:
            with translate_error(self.path):
                self.fs.gateway.boto.abort_multipart_upload(
                    Bucket=self._bucket, Key=self._key, UploadId=upload_id
                )

    def close(self) -> None:
        """Writes what is left, and makes the object visible. If that fails, nothing is left behind.

        Called while an exception is under way that was not when the file was opened, it discards: a
        part of what was to be written must not look like all of it. What wraps files (text,
        compression, `fsspec.open`) tells of the exception in no other way.
        """
        if self.closed or self._forget_parents():
            return
        error = sys.exc_info()[1]
        if error is not None and error is not self._opened_under:
            self._give_up(f"it was closed while {type(error).__name__} was under way")
            return
        try:
            super().close()
        except BaseException:
            self.closed = True
            self.discard()
            raise

    def _give_up(self, why: str) -> None:
        self.closed = True
        self.discard()
        warnings.warn(f"s3://{self._bucket}/{self._key} was not written: {why}", stacklevel=3)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif not self.closed and not self._forget_parents():
            # Whoever sees the exception knows.
            self.closed = True
            self.discard()

    def __del__(self) -> None:
        # The file may not have been made to its end.
        if hasattr(self, "_process") and not self.closed and not self._forget_parents():
            self._give_up("nobody has closed it")

    def _forget_parents(self) -> bool:
        """Lets a file go that the process this one was forked from has opened."""
        if self._process == os.getpid():
            return False
        self.closed = True
        return True
