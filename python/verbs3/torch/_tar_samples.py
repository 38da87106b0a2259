"""The samples of one tar shard: members that follow each other and have one name but for its ending."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .._object_file import ObjectFile

_BLOCK_BYTES = 512


@dataclass
class ShardSample:
    """A sample, and where the next one begins."""

    members: dict[str, Any]
    next_offset: int


def read_samples(file: ObjectFile, offset: int) -> Iterator[ShardSample]:
    """Reads samples from a byte on where one begins.

    A sample's members are `__key__`, `__url__`, and bytes by what follows the first dot of a file's
    name. `tarfile.ReadError`: the shard is damaged. Nothing of it is left out in silence.
    """
    file.seek(offset)
    archive = tarfile.open(fileobj=file, mode="r:")
    sample: dict[str, Any] = {}
    for member in _walk_members(archive, file):
        folder, slash, name = member.name.rpartition("/")
        stem, _, ending = name.partition(".")
        key = folder + slash + stem
        if sample and sample["__key__"] != key:
            yield ShardSample(sample, member.offset)
            sample = {}
        if ending in sample:
            raise tarfile.ReadError(f"{file.name} has {member.name} twice in a row")
        sample = sample or {"__key__": key, "__url__": file.name}
        sample[ending] = _read_member(file, member)
    if sample:
        yield ShardSample(sample, file.size)


def _walk_members(archive: tarfile.TarFile, file: ObjectFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        # It would keep the headers of the whole shard.
        archive.members = []  # type: ignore[attr-defined]
        if member.isfile():
            yield member
    # tarfile takes a damaged header for the end. The end is a block of zeros, or that of the file.
    file.seek(archive.offset)
    block = file.read(_BLOCK_BYTES)
    if block.strip(b"\0"):
        raise tarfile.ReadError(f"{file.name} is damaged at byte {archive.offset}")


def _read_member(file: ObjectFile, member: tarfile.TarInfo) -> bytes:
    if member.issparse():
        raise tarfile.ReadError(f"{file.name}: {member.name} is sparse, which shards are not")
    file.seek(member.offset_data)
    data = file.read(member.size)
    if len(data) != member.size:
        raise tarfile.ReadError(f"{file.name} ends inside of {member.name}")
    return data
