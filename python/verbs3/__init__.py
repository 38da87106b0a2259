"""Reads S3 objects through a verbs3 gateway of this host, without HTTP.

>>> import verbs3
>>> reader = verbs3.connect("/run/verbs3/gateway.sock")     # doctest: +SKIP
>>> view = reader.read("train", "shard-00.tar")              # doctest: +SKIP

This process lends the gateway memory. Objects land in it, and `read` returns a view of where they
lie. `client` gives boto3's own client, whose reads go this way where they can.
"""

from ._boto_client import client
from ._errors import S3Error
from ._native import LendingError, LendingUnavailable, MemoryFull, RequestTooLong
from ._reader import Reader, connect

__all__ = [
    "LendingError",
    "LendingUnavailable",
    "MemoryFull",
    "Reader",
    "RequestTooLong",
    "S3Error",
    "client",
    "connect",
]
