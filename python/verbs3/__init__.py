"""Reads S3 objects through a verbs3 gateway of this host, without HTTP.

>>> import verbs3
>>> reader = verbs3.connect()                       # VERBS3_SOCKET, or /run/verbs3/gateway.sock
>>> view = reader.read("train", "shard-00.tar")     # a memoryview: no copy was made for it
>>> len(view)
10240

This process lends the gateway memory. Objects land in it, and `read` returns a view of where they
lie. `client` gives boto3's own client, whose reads go this way where they can; `patch` has boto3
make such clients itself. `verbs3.fsspec`, `verbs3.torch`, `verbs3.safetensors` and
`verbs3.pyarrow` bring objects to those libraries, and are imported by name.
"""

from ._async_reader import AsyncReader
from ._boto_client import client
from ._errors import S3Error
from ._native import LendingError, LendingUnavailable, MemoryFull, RequestTooLong
from ._object_file import ObjectFile
from ._patching import patch, unpatch
from ._preload import PreloadError, PreloadJob, preload, preload_job
from ._reader import Reader, connect
from ._shared_reader import exists, shared_reader
from ._verdicts import HitRate, hit_rate

__all__ = [
    "AsyncReader",
    "HitRate",
    "LendingError",
    "LendingUnavailable",
    "MemoryFull",
    "ObjectFile",
    "PreloadError",
    "PreloadJob",
    "Reader",
    "RequestTooLong",
    "S3Error",
    "client",
    "connect",
    "exists",
    "hit_rate",
    "patch",
    "preload",
    "preload_job",
    "shared_reader",
    "unpatch",
]
