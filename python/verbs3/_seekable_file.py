"""The position of a raw file of known length. Knows nothing of where its bytes come from."""

from __future__ import annotations

import io
import os


class SeekableFile(io.RawIOBase):
    """A file to read, seekable. Whoever owns the bytes reads from `_at` on, and moves it."""

    def __init__(self, size: int):
        self.size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}
        if whence not in base:
            raise ValueError(f"whence {whence} is none of 0, 1 and 2")
        if base[whence] + offset < 0:
            raise ValueError("a file has no position before its beginning")
        self._at = base[whence] + offset
        return self._at
