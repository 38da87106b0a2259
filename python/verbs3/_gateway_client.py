"""A boto3 client of the gateway, for what lent memory does not do: listings, and the ends of writes.

It is made anew in each process: a forked child must not write on its parent's connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import _native
from ._locations import find_endpoint
from ._process_lock import ProcessLock


@dataclass(frozen=True)
class ListedObject:
    """An object as a listing shows it."""

    key: str
    size: int
    etag: str
    modified: Any


class GatewayClient:
    """Lists over HTTP, and writes. Threads and forked children may share it; it can be pickled."""

    def __init__(
        self,
        endpoint_url: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        lend: Callable[[], _native.NativeClient] | None = None,
    ):
        """`lend`: bodies are written by the lent memory that it returns, where it has any."""
        self.endpoint_url = find_endpoint(endpoint_url)
        self._key = access_key, secret_key
        self._lend = lend
        self._lock = ProcessLock()
        self._made: tuple[int, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"endpoint_url": self.endpoint_url, "_key": self._key}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self._lend, self._lock, self._made = None, ProcessLock(), None

    @property
    def boto(self) -> Any:
        """The boto3 client of this process."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), self._make_client()
            return self._made[1]

    def _make_client(self) -> Any:
        import boto3
        from botocore.config import Config

        from ._boto_client import LateConnection, attach_writes, plain_client
        from ._credentials import find_region

        access_key, secret_key = self._key
        made = plain_client(
            boto3.session.Session(),
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            region_name=find_region(None),
            # URLs, too, are signed by version 4: boto3's default for them is the old version 2.
            config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"),
        )
        if self._lend is not None:
            attach_writes(made, LateConnection(self._lend))
        return made

    def list_objects(self, bucket: str, prefix: str) -> Iterator[ListedObject]:
        """Lists all objects whose keys begin so, in their order, one page after the other."""
        for page in self.boto.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            yield from listed_objects(page)


def listed_objects(page: dict[str, Any]) -> Iterator[ListedObject]:
    """The objects of one page."""
    for shown in page.get("Contents", ()):
        yield ListedObject(shown["Key"], shown["Size"], shown["ETag"], shown["LastModified"])
