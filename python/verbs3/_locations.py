"""Where things are: objects by their URL, the gateway's socket and its HTTP endpoint."""

from __future__ import annotations

import os

SOCKET = "/run/verbs3/gateway.sock"
ENDPOINT = "http://127.0.0.1:9000"

SCHEMES = ("s3://", "verbs3://")


def parse_url(url: str) -> tuple[str, str]:
    """Bucket and key of `s3://BUCKET/KEY`; the key may be empty.

    >>> parse_url("s3://train/2026/shard-00.tar")
    ('train', '2026/shard-00.tar')
    """
    for scheme in SCHEMES:
        if url.startswith(scheme):
            bucket, _, key = url.removeprefix(scheme).partition("/")
            if bucket:
                return bucket, key
    raise ValueError(f"{url!r} is not s3://BUCKET/KEY")


def parse_object(url: str) -> tuple[str, str]:
    """Bucket and key of one object."""
    bucket, key = parse_url(url)
    if not key:
        raise ValueError(f"{url!r} names no object: it is not s3://BUCKET/KEY")
    return bucket, key


def find_socket(socket: str | os.PathLike[str] | None) -> str:
    """The socket that was asked for, `VERBS3_SOCKET`, or the usual one."""
    return os.fspath(socket or os.environ.get("VERBS3_SOCKET") or SOCKET)


def find_endpoint(endpoint_url: str | None) -> str:
    """The endpoint that was asked for, that of the environment, or the usual one of a node."""
    found = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint_url or found or ENDPOINT
