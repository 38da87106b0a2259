"""A file system of pyarrow. Columns of a parquet file are read as ranges into lent memory.

>>> import pyarrow.parquet, verbs3.pyarrow
>>> files = verbs3.pyarrow.file_system()
>>> [found.path for found in files.get_file_info(["train/hello.txt"])]
['train/hello.txt']
>>> files.open_input_file("train/hello.txt").read_at(3, 1)
b'ell'
"""

from __future__ import annotations

from typing import Any

from pyarrow import PythonFile
from pyarrow.fs import FSSpecHandler, PyFileSystem

from .fsspec import Verbs3FileSystem

__all__ = ["Verbs3Handler", "file_system"]

# Parquet's footer and small columns come in one read; columns that are longer go past the buffer.
_BUFFER_BYTES = 64 << 10


class Verbs3Handler(FSSpecHandler):  # type: ignore[misc]
    """Answers pyarrow by `Verbs3FileSystem`. Random reads take no more than what was asked for."""

    def open_input_file(self, path: str) -> Any:
        """Opens an object for reads anywhere in it."""
        return PythonFile(self.fs.open(path, "rb", block_size=_BUFFER_BYTES), mode="r")

    def open_input_stream(self, path: str) -> Any:
        """Opens an object for a read from its beginning to its end."""
        return PythonFile(self.fs.open(path, "rb"), mode="r")


def file_system(files: Verbs3FileSystem | None = None, **options: Any) -> PyFileSystem:
    """A file system for `pyarrow.parquet` and `pyarrow.dataset`. Paths are `BUCKET/KEY`.

    Takes a `Verbs3FileSystem`, or its options.
    """
    if files is not None and options:
        raise ValueError("give a file system, or the options of one")
    return PyFileSystem(Verbs3Handler(files or Verbs3FileSystem(**options)))
