"""A data set of which each object is a sample. A batch is read at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import Dataset

from .._gateway_client import GatewayClient
from .._locations import parse_object, parse_url
from .._reader import Reader
from .._shared_reader import shared_reader


class ObjectDataset(Dataset[Any]):  # type: ignore[misc]
    """Objects by their URLs, in the order in which they are given.

    `transform` makes a sample of the object's view; without it, a sample is the object's bytes. A
    sample that keeps the view keeps its part of the lent memory. A `transform` that copies to a GPU
    from memory that is pinned (`pin_for`) copies without `non_blocking`. `DataLoader` asks for a batch's
    indices at once, and the batch is read in one go. Workers connect by themselves.

    >>> from torch.utils.data import DataLoader
    >>> objects = ObjectDataset(["s3://train/hello.txt"] * 4, transform=len)
    >>> next(iter(DataLoader(objects, batch_size=4, num_workers=0)))
    tensor([5, 5, 5, 5])
    """

    def __init__(
        self,
        urls: Sequence[str],
        transform: Callable[[memoryview], Any] = bytes,
        *,
        reader: Reader | None = None,
    ):
        # A wrong URL is found here, and not in the middle of an epoch.
        for url in urls:
            parse_object(url)
        self.urls = urls
        self.transform = transform
        self._reader = reader

    @classmethod
    def from_prefix(
        cls,
        url: str,
        transform: Callable[[memoryview], Any] = bytes,
        *,
        suffix: str = "",
        reader: Reader | None = None,
        endpoint_url: str | None = None,
    ) -> ObjectDataset:
        """All objects whose URL begins so and ends with `suffix`, in the order of their keys.

        They are listed now, over HTTP, with the keys that boto3 would take.

        >>> ObjectDataset.from_prefix("s3://train/", suffix=".tar").urls
        ['s3://train/shard-00.tar']
        """
        bucket, prefix = parse_url(url)
        listed = GatewayClient(endpoint_url).list_objects(bucket, prefix)
        keys = (one.key for one in listed if one.key.endswith(suffix) and not one.key.endswith("/"))
        urls = [f"s3://{bucket}/{key}" for key in keys]
        return cls(urls, transform, reader=reader)

    def __len__(self) -> int:
        return len(self.urls)

    def __getitem__(self, index: int) -> Any:
        reader = self._reader or shared_reader()
        return self.transform(reader.read(*parse_object(self.urls[index])))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of a batch, in its order."""
        reader = self._reader or shared_reader()
        samples: list[Any] = [None] * len(indices)
        reads = [parse_object(self.urls[index]) for index in indices]
        for at, view in reader.read_many(reads):
            samples[at] = self.transform(view)
            del view
        return samples
