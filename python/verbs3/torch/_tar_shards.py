"""A data set over tar shards: shared out to ranks and workers, shuffled by epoch, and resumable."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from .._locations import parse_object
from .._reader import Reader
from .._shared_reader import shared_reader
from ._tar_samples import read_samples

_STATE_VERSION = 1


class TarShards(IterableDataset[Any]):  # type: ignore[misc]
    """Samples of tar shards, as WebDataset's: files that follow each other and share a name.

    A sample is a dictionary: `__key__`, `__url__`, and bytes by file ending (`"jpg"`, `"cls"`);
    `decode` makes something else of it. Shard by shard they go to the workers of all ranks: each
    shard to one of them, all shards to somebody. With `shuffle`, their order is another one in each
    epoch, and the same for all with one `seed`. Samples stay in the order of their shard.

    `rank` and `world_size` are those of torch.distributed, where it is initialised. Call `set_epoch`
    before each epoch. `state_dict` says where the data set stands, in its process: with workers, use
    torchdata's `StatefulDataLoader`, which asks each of them. `load_state_dict` goes on behind the
    last sample, by one read of its shard, which has to be the same object still.

    >>> shards = TarShards(["s3://train/shard-00.tar"])
    >>> samples = iter(shards)
    >>> next(samples)["__key__"], next(samples)["__key__"]
    ('0000', '0001')
    >>> again = TarShards(["s3://train/shard-00.tar"])
    >>> again.load_state_dict(shards.state_dict())
    >>> [sample["__key__"] for sample in again]
    ['0002', '0003']
    """

    def __init__(
        self,
        urls: Sequence[str],
        decode: Callable[[dict[str, Any]], Any] | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        reader: Reader | None = None,
        buffer_bytes: int = 8 << 20,
    ):
        self.urls = list(urls)
        for url in self.urls:
            parse_object(url)
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size come together")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is none of {world_size}")
        self._digest = hashlib.sha256("\n".join(self.urls).encode()).hexdigest()
        self.decode = decode
        self.shuffle = shuffle
        self.seed = seed
        self._rank, self._world_size = rank, world_size
        self._reader = reader
        self._buffer_bytes = buffer_bytes
        # In shared memory: workers that stay for several epochs see what the main process sets.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._state: dict[str, Any] | None = None
        self._resumed: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is of."""
        return int(self._epoch.item())

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is of, to workers as well."""
        self._epoch.fill_(epoch)

    def own_shards(self) -> list[str]:
        """The URLs that this worker of this rank reads in this epoch, in their order."""
        consumer, consumers = self._find_place()
        order = list(self.urls)
        if self.shuffle:
            random.Random(f"{self.seed}/{self.epoch}").shuffle(order)
        return order[consumer::consumers]

    def __iter__(self) -> Iterator[Any]:
        begin = self._take_resumed()
        epoch = self.epoch
        for position, url in enumerate(self.own_shards()):
            if position < begin["shard"]:
                continue
            reader = self._reader or shared_reader()
            with reader.open(*parse_object(url), buffer_bytes=self._buffer_bytes) as file:
                offset = begin["offset"] if position == begin["shard"] else 0
                if offset and file.etag != begin["etag"]:
                    raise ValueError(f"{url} is another object than the one that the state is of")
                if offset < file.size:
                    for sample in read_samples(file, offset):
                        self._note_place(epoch, position, sample.next_offset, file.etag)
                        made = sample.members
                        yield made if self.decode is None else self.decode(made)
            self._note_place(epoch, position + 1, 0, "")

    def state_dict(self) -> dict[str, Any]:
        """Where this process stands: behind the last sample that it has given out."""
        if self._resumed is not None:
            return dict(self._resumed)
        return dict(self._state or self._place(self.epoch, 0, 0, ""))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Has the next iteration go on there, if it is of the state's epoch."""
        wanted = self._place(state.get("epoch", 0), 0, 0, "")
        for name in ("version", "shards", "seed", "shuffle"):
            if state.get(name) != wanted[name]:
                raise ValueError(f"the state is of another data set: {name} is not {wanted[name]!r}")
        self._resumed = dict(state)
        self.set_epoch(state["epoch"])

    def _take_resumed(self) -> dict[str, Any]:
        resumed, self._resumed = self._resumed, None
        begin = self._place(self.epoch, 0, 0, "")
        if resumed is not None and resumed["epoch"] == self.epoch:
            for name in ("consumer", "consumers"):
                if resumed[name] != begin[name]:
                    raise ValueError(
                        f"the state is that of worker {resumed['consumer']} of "
                        f"{resumed['consumers']}, and this is {begin['consumer']} of "
                        f"{begin['consumers']}: resume with as many ranks and workers"
                    )
            begin = resumed
        self._state = begin
        return begin

    def _note_place(self, epoch: int, shard: int, offset: int, etag: str) -> None:
        self._state = self._place(epoch, shard, offset, etag)

    def _place(self, epoch: int, shard: int, offset: int, etag: str) -> dict[str, Any]:
        consumer, consumers = self._find_place()
        return {
            "version": _STATE_VERSION,
            "shards": self._digest,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "consumer": consumer,
            "consumers": consumers,
            "epoch": epoch,
            "shard": shard,
            "offset": offset,
            "etag": etag,
        }

    def _find_place(self) -> tuple[int, int]:
        """Which of all workers of all ranks this is, and how many there are."""
        rank, world_size = self._find_rank()
        worker = get_worker_info()
        if worker is None:
            return rank, world_size
        return rank * worker.num_workers + worker.id, world_size * worker.num_workers

    def _find_rank(self) -> tuple[int, int]:
        if self._rank is not None and self._world_size is not None:
            return self._rank, self._world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is spawned knows of no torch.distributed: it is told its rank.
        rank, world_size = self._find_rank()
        return self.__dict__ | {"_rank": rank, "_world_size": world_size}
