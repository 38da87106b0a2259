"""boto3's own S3 client, whose GetObject and HeadObject go by lent memory where they can, and its
writes (`_lent_writes`).

botocore builds the request of a read, and parses the answer, retries and raises as ever: only the
sending is replaced (its event `before-send`). So responses and exceptions are boto3's own.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from . import _native
from ._asking import EXPECTED_BYTES, bytes_of, expected_bytes, headers_of
from ._credentials import Credentials, find_region
from ._lent_writes import LentWrites
from ._locations import find_socket
from ._process_lock import ProcessLock
from ._reader import Reader

_FORWARDED = frozenset(_native.NativeClient.forwarded_headers())
# They change nothing, or say who asks, which the connection has proven.
_IGNORED = frozenset(
    {
        "accept",
        "accept-encoding",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "authorization",
        "connection",
        "host",
        "user-agent",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-user-agent",
    }
)
# Arguments of boto3's Session.client after the service's name.
_POSITIONS = (
    "region_name",
    "api_version",
    "use_ssl",
    "verify",
    "endpoint_url",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "config",
)
# What a read's URL may ask.
_QUERIES = ("", "x-id=GetObject", "x-id=HeadObject")
# How long requests go over HTTP before they look for the gateway again.
RETRY_SECONDS = 30.0
_notice = ProcessLock()
_noticed: set[str] = set()


def client(service_name: str, *args: Any, **kwargs: Any) -> Any:
    """Returns a boto3 client of `service_name`; for `"s3"`, its reads and writes go by
    lent memory.

    Takes what `boto3.client` takes, and `socket`, `memory`, `reads_max` (see `connect`), and
    `session`, a boto3 session. Without a gateway's socket it goes over HTTP, says so once, and looks
    for the socket again every half a minute. Without a key that proves something to the gateway it is
    a plain boto3 client.

    >>> import os, verbs3
    >>> s3 = verbs3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    >>> s3.get_object(Bucket="train", Key="hello.txt")["Body"].read()
    b'hello'
    >>> s3.verbs3.fast, s3.verbs3.slow
    (1, 0)
    """
    import boto3

    socket, session = kwargs.pop("socket", None), kwargs.pop("session", None)
    memory, reads_max = kwargs.pop("memory", "64MiB"), kwargs.pop("reads_max", 64)
    session = session or boto3.session.Session()
    made = plain_client(session, service_name, *args, **kwargs)
    if service_name == "s3":
        lend = LendingTerms(find_socket(socket), bytes_of(memory), reads_max)
        try:
            key = key_of(session, args, kwargs)
        except ValueError as error:
            say_once(lend.socket, f"verbs3 goes over HTTP: {error}")
        else:
            facts = ClientFacts.of_client(made)
            attach_lending(made, LateConnection(lambda: connect_client(facts, key, lend)), lend.socket)
    return made


def plain_client(session: Any, *args: Any, **kwargs: Any) -> Any:
    """A client of the session as boto3 makes it, whether or not `patch` is in force."""
    make = session.client
    unpatched = getattr(make, "verbs3_original", None)
    return unpatched(session, *args, **kwargs) if unpatched else make(*args, **kwargs)


@dataclass(frozen=True)
class LendingTerms:
    """Which gateway is lent how much."""

    socket: str
    memory_bytes: int
    reads_max: int


@dataclass(frozen=True)
class ClientFacts:
    """What a connection takes from a boto3 client, which it may outlive."""

    region: str | None
    read_timeout: float | None

    @classmethod
    def of_client(cls, made: Any) -> ClientFacts:
        return cls(made.meta.region_name, made.meta.config.read_timeout)


def connect_client(facts: ClientFacts, key: Credentials, lend: LendingTerms) -> _native.NativeClient:
    """Lends memory for the reads of a boto3 client."""
    return _native.NativeClient(
        lend.socket,
        key.access_key,
        key.secret_key,
        region=find_region(facts.region),
        memory_bytes=lend.memory_bytes,
        reads_max=lend.reads_max,
        # HTTP is there meanwhile.
        reconnect_for=0.0,
        read_for=facts.read_timeout or float("inf"),
    )


class LateConnection:
    """Lent memory that is there once the gateway is: at the first look, or at a later one."""

    def __init__(self, connect: Callable[[], _native.NativeClient]):
        self._connect = connect
        self._lock = ProcessLock()
        self._native: _native.NativeClient | None = None
        self._retry_at = 0.0
        self.error: _native.LendingError | None = None

    def find_native(self) -> _native.NativeClient | None:
        """Returns the connection. `None`: the gateway was not there, and is not looked for now."""
        if self._native is None and time.monotonic() >= self._retry_at:
            with self._lock:
                # Another thread may have looked meanwhile.
                if self._native is None and time.monotonic() >= self._retry_at:
                    self._look()
        return self._native

    def _look(self) -> None:
        try:
            self._native = self._connect()
        except _native.LendingError as error:
            self.error = error
            self._retry_at = time.monotonic() + RETRY_SECONDS


def attach_lending(made: Any, connection: LateConnection, socket: str) -> None:
    """Sends a boto3 client's reads and writes by lent memory, from when the gateway is there on."""
    if connection.find_native() is None:
        say_once(socket, f"verbs3 goes over HTTP: {connection.error}")
    host = urlsplit(made.meta.endpoint_url).netloc
    reads = LentReads(connection, host, attach_writes(made, connection))
    for operation in ("GetObject", "HeadObject"):
        made.meta.events.register_last(f"before-send.s3.{operation}", reads)
    made.verbs3 = reads


def attach_writes(made: Any, connection: LateConnection) -> LentWrites:
    """Sends a boto3 client's writes by lent memory."""
    host = urlsplit(made.meta.endpoint_url).netloc
    writes = LentWrites(connection, made.meta.events, lambda url: object_of_url(url, host))
    # Handlers of a more special event would come before all those of this one, and may answer.
    made.meta.events.register_last("before-call", writes)
    return writes


def object_of_url(url: str, host: str) -> tuple[str, str] | None:
    """Bucket and key. `None`: it is of another host, or names no object."""
    parts = urlsplit(url)
    if parts.netloc == host:
        bucket, _, key = parts.path[1:].partition("/")
    elif parts.netloc.endswith(f".{host}"):
        bucket, key = parts.netloc.removesuffix(f".{host}"), parts.path[1:]
    else:
        return None
    bucket, key = unquote(bucket), unquote(key)
    return (bucket, key) if bucket and key else None


def key_of(session: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Credentials:
    """The access key that a client of this session signs with. `args` are boto3's, by position."""
    named = dict(zip(_POSITIONS, args, strict=False)) | kwargs
    if named.get("aws_access_key_id"):
        found = Credentials(named["aws_access_key_id"], named.get("aws_secret_access_key") or "")
        token = named.get("aws_session_token")
    else:
        known = session.get_credentials()
        if known is None:
            raise ValueError("there is no access key")
        frozen = known.get_frozen_credentials()
        found, token = Credentials(frozen.access_key, frozen.secret_key), frozen.token
    if token:
        raise ValueError("temporary credentials prove nothing to a gateway")
    return found


def say_once(about: str, message: str) -> None:
    """Warns, once for each thing that a warning is about."""
    with _notice:
        if about in _noticed:
            return
        _noticed.add(about)
    warnings.warn(message, stacklevel=4)


class LentReads:
    """The handler that sends reads by lent memory. `fast` and `slow` count what went which way, and
    those of `writes` do so for writes."""

    def __init__(self, connection: LateConnection, host: str, writes: LentWrites):
        self._connection = connection
        self._host = host
        self.writes = writes
        self.fast = 0
        self.slow = 0

    @property
    def reader(self) -> Reader:
        """A reader of the same lent memory. Raises `LendingError` while the gateway is away."""
        native = self._connection.find_native()
        if native is None:
            raise self._connection.error or _native.LendingError("the gateway is away")
        return Reader(native)

    def __call__(self, request: Any, **_: Any) -> Any:
        answer = self._send(request)
        if answer is None:
            self.slow += 1
        else:
            self.fast += 1
        return answer

    def _send(self, request: Any) -> Any:
        """Returns an answer as HTTP's would be. `None`: this read goes over HTTP."""
        from botocore.awsrequest import AWSResponse

        asks_for_more = urlsplit(request.url).query not in _QUERIES
        target = None if asks_for_more else object_of_url(request.url, self._host)
        headers = _forwarded(request.headers)
        native = self._connection.find_native()
        is_signed = "Authorization" in request.headers
        if target is None or headers is None or native is None or not is_signed:
            return None
        is_head = request.method == "HEAD"
        wanted = next((value for name, value in headers if name == "range"), None)
        expected = EXPECTED_BYTES if wanted is None else expected_bytes(wanted)
        try:
            status, answered, body = native.read(is_head, *target, headers, expected)
        except _native.LendingError:
            # Too long for this way, no memory left, or the gateway is away: HTTP knows what to say.
            return None
        return AWSResponse(request.url, status, headers_of(answered), LentRaw(body))


def _forwarded(headers: Any) -> list[tuple[str, str]] | None:
    """Headers that change the answer. `None`: one does that lent memory does not know."""
    forwarded = []
    for name, value in headers.items():
        name = name.lower()
        if name in _FORWARDED:
            forwarded.append((name, value.decode("latin-1") if isinstance(value, bytes) else value))
        elif name not in _IGNORED:
            return None
    return forwarded


class LentRaw(io.RawIOBase):
    """A body that reads as urllib3's does. Its memory is given back at its end, or when closed."""

    def __init__(self, body: _native.NativeBody):
        self._view: memoryview | None = memoryview(body)
        self._at = 0
        self._process = os.getpid()

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def read(self, amt: int | None = None, **_: Any) -> bytes:
        taken = self._take(amt)
        if taken is None:
            return b""
        data = bytes(taken)
        taken.release()
        self._end_if_done()
        return data

    def readinto(self, target: Any) -> int:
        room = memoryview(target).cast("B")
        taken = self._take(len(room))
        if taken is None:
            return 0
        count = len(taken)
        room[:count] = taken
        taken.release()
        self._end_if_done()
        return count

    def stream(self, amt: int = 65536, **_: Any) -> Iterator[bytes]:
        while data := self.read(amt):
            yield data

    def release_conn(self) -> None:
        self.close()

    def close(self) -> None:
        self._drop()
        super().close()

    def _take(self, amt: int | None) -> memoryview | None:
        if self._view is None:
            return None
        if self._process != os.getpid():
            raise _native.LendingError("the body is in the memory of the process that this one was forked from")
        end = len(self._view) if amt is None or amt < 0 else min(self._at + amt, len(self._view))
        taken = self._view[self._at : end]
        self._at = end
        return taken

    def _end_if_done(self) -> None:
        if self._view is not None and self._at == len(self._view):
            self._drop()

    def _drop(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.release()
