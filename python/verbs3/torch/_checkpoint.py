"""Checkpoints of torch.distributed.checkpoint: written over HTTP, read by lent memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystemBase
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from .._locations import SCHEMES, parse_url
from .._seekable_file import SeekableFile
from ..fsspec import Verbs3FileSystem

# What is longer is read in pieces, into memory of its own.
_LENT_BYTES_MAX = 8 << 20


class _CheckpointFiles(FileSystemBase):  # type: ignore[misc]
    """What torch asks of a file system, of objects. A checkpoint is `s3://BUCKET/PREFIX`."""

    def __init__(self, files: Verbs3FileSystem):
        self.files = files

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        # A write that fails leaves nothing behind by itself.
        with self.files.open(str(path), mode) as stream:
            yield stream

    def concat_path(self, path: Any, suffix: str) -> str:
        return f"{str(path).rstrip('/')}/{suffix}"

    def init_path(self, path: Any) -> str:
        bucket, prefix = parse_url(str(path))
        return f"s3://{bucket}/{prefix}".rstrip("/")

    def rename(self, path: Any, new_path: Any) -> None:
        self.files.mv(str(path), str(new_path))

    def mkdir(self, path: Any) -> None:
        """Does nothing: folders of objects are not made."""

    def exists(self, path: Any) -> bool:
        return bool(self.files.exists(str(path)))

    def ls(self, path: Any) -> list[str]:
        return [f"s3://{name}" for name in self.files.ls(str(path), detail=False)]

    def rm_file(self, path: Any) -> None:
        self.files.rm_file(str(path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return str(checkpoint_id).startswith(SCHEMES)


class CheckpointWriter(FileSystemWriter):  # type: ignore[misc]
    """Writes a checkpoint to `s3://BUCKET/PREFIX`, with torch.distributed.checkpoint.

    Each file is one object, which is there whole or not at all; `.metadata` is the last one. Takes
    what `FileSystemWriter` takes, and `files`, a `Verbs3FileSystem`.

    >>> import torch.distributed.checkpoint as dcp
    >>> made = dcp.save({"weight": torch.ones(2)}, storage_writer=CheckpointWriter("s3://scratch/step-1"))
    >>> loaded = {"weight": torch.zeros(2)}
    >>> dcp.load(loaded, storage_reader=CheckpointReader("s3://scratch/step-1"))
    >>> loaded["weight"]
    tensor([1., 1.])
    """

    def __init__(self, path: str, *, files: Verbs3FileSystem | None = None, **options: Any):
        # Nothing is synced: an object that was acknowledged is there.
        super().__init__(path, **{"sync_files": False, **options})
        self.fs = _CheckpointFiles(files or Verbs3FileSystem())
        self.path = self.fs.init_path(path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return _CheckpointFiles.validate_checkpoint_id(checkpoint_id)


class CheckpointReader(FileSystemReader):  # type: ignore[misc]
    """Reads a checkpoint of `s3://BUCKET/PREFIX`, whoever wrote it. Its parts are read together."""

    def __init__(self, path: str, *, files: Verbs3FileSystem | None = None):
        super().__init__(path)
        self.files = files or Verbs3FileSystem()
        self.fs = _CheckpointFiles(self.files)
        self.path = self.fs.init_path(path)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads what the plan says. Short parts are many at once in lent memory."""
        places = {id(item): self.storage_data[item.storage_index] for item in plan.items}
        if any(getattr(place, "transform_descriptors", None) for place in places.values()):
            # Compressed by a newer torch: it knows how to undo that.
            return super().read_data(plan, planner)
        short = [item for item in plan.items if places[id(item)].length <= _LENT_BYTES_MAX]
        reads = [self._locate_part(places[id(item)]) for item in short]
        for index, view in self.files.reader.read_many(reads):
            _load_part(short[index], view, planner)
            del view
        for item in plan.items:
            place = places[id(item)]
            if place.length > _LENT_BYTES_MAX:
                bucket, key, (start, stop) = self._locate_part(place)
                part = bytearray(stop - start)
                filled = self.files.reader.read_into(bucket, key, part, start)
                if filled != len(part):
                    raise EOFError(f"s3://{bucket}/{key} ends at byte {start + filled}, before {stop}")
                _load_part(item, memoryview(part), planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _locate_part(self, place: Any) -> tuple[str, str, tuple[int, int]]:
        bucket, key = parse_url(self.fs.concat_path(self.path, place.relative_path))
        return bucket, key, (place.offset, place.offset + place.length)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return _CheckpointFiles.validate_checkpoint_id(checkpoint_id)


def _load_part(item: ReadItem, part: memoryview, planner: LoadPlanner) -> None:
    """Gives a part to the planner, as torch's own reader does."""
    if item.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item, io.BytesIO(part))
        return
    found = torch.load(_PartFile(part), map_location="cpu", weights_only=True)
    for dimension, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        found = found.narrow(dimension, offset, length)
    target = planner.resolve_tensor(item).detach()
    if target.size() != found.size():
        raise ValueError(f"{item.storage_index} has size {found.size()}, and not {target.size()}")
    target.copy_(found)
    planner.commit_tensor(item, target)


class _PartFile(SeekableFile):
    """A view as a file, without a copy of all of it."""

    def __init__(self, view: memoryview):
        super().__init__(len(view))
        self._view = view

    def readinto(self, target: Any) -> int:
        room = memoryview(target).cast("B")
        found = self._view[self._at : self._at + len(room)]
        room[: len(found)] = found
        self._at += len(found)
        return len(found)
