"""Has boto3 itself make fast clients, for code that can't change.

Clients that share key, region and timeout share their lent memory, too: code that makes a client
for each read would lend it again each time.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

from ._asking import bytes_of
from ._boto_client import (
    ClientFacts,
    LateConnection,
    LendingTerms,
    attach_lending,
    connect_client,
    key_of,
    say_once,
)
from ._credentials import Credentials
from ._locations import find_endpoint, find_socket
from ._process_lock import ProcessLock

# Connections that are kept for clients to come. Clients that are in use keep theirs anyway.
CONNECTIONS_KEPT_MAX = 8

_lock = ProcessLock()


class _Patch:
    """A patch that is in force."""

    def __init__(self, lend: LendingTerms, endpoint: str):
        self.lend = lend
        self.endpoint = endpoint
        self._lock = ProcessLock()
        self._known: OrderedDict[tuple[Any, ...], LateConnection] = OrderedDict()

    def speed_up(self, session: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Sends the reads of a new client by lent memory, if they may go that way."""
        endpoint = made.meta.endpoint_url
        if _place_of(endpoint) != _place_of(self.endpoint):
            say_once(
                endpoint,
                f"verbs3.patch leaves clients of {endpoint} alone: it is for {self.endpoint}, and "
                "endpoint_url= or AWS_ENDPOINT_URL names another one",
            )
            return
        try:
            key = key_of(session, args, kwargs)
        except ValueError as error:
            say_once(self.lend.socket, f"verbs3 goes over HTTP: {error}")
            return
        attach_lending(made, self._find_connection(made, key), self.lend.socket)

    def _find_connection(self, made: Any, key: Credentials) -> LateConnection:
        about = (key, made.meta.region_name, made.meta.config.read_timeout)
        lend, facts = self.lend, ClientFacts.of_client(made)
        with self._lock:
            known = self._known.pop(about, None)
            known = known or LateConnection(lambda: connect_client(facts, key, lend))
            self._known[about] = known
            while len(self._known) > CONNECTIONS_KEPT_MAX:
                self._known.popitem(last=False)
            return known


_in_force: _Patch | None = None


def patch(
    endpoint_url: str | None = None,
    *,
    socket: str | None = None,
    memory: int | str = "64MiB",
    reads_max: int = 64,
) -> bool:
    """Has `boto3.client("s3")`, `Session.client` and `Session.resource` make fast clients from now on.

    Only clients of the gateway at `endpoint_url` are fast (`AWS_ENDPOINT_URL_S3`,
    `AWS_ENDPOINT_URL`, else `http://127.0.0.1:9000`): those of other stores stay as they are, with
    one warning. Returns whether a gateway answers at the socket now. Where none does, clients work
    over HTTP, say so once, and look for it again every half a minute. Called again, it only changes
    where clients made afterwards go.

    >>> import boto3, verbs3
    >>> verbs3.patch()
    True
    >>> s3 = boto3.client("s3")
    >>> s3.get_object(Bucket="train", Key="hello.txt")["Body"].read(), s3.verbs3.fast
    (b'hello', 1)
    >>> verbs3.unpatch()
    """
    import boto3

    global _in_force
    lend = LendingTerms(find_socket(socket), bytes_of(memory), reads_max)
    wanted = _Patch(lend, find_endpoint(endpoint_url))
    with _lock:
        if _in_force is None or (_in_force.lend, _in_force.endpoint) != (lend, wanted.endpoint):
            _in_force = wanted
        session = boto3.session.Session
        if not hasattr(session.client, "verbs3_original"):
            session.client = _wrap_client(session.client)
    return _answers(lend.socket)


def unpatch() -> None:
    """Has boto3 make its own clients again. Clients that were made meanwhile stay as they are."""
    import boto3

    global _in_force
    with _lock:
        _in_force = None
        session = boto3.session.Session
        session.client = getattr(session.client, "verbs3_original", session.client)


def _wrap_client(original: Any) -> Any:
    @functools.wraps(original)
    def client(self: Any, service_name: str, *args: Any, **kwargs: Any) -> Any:
        made = original(self, service_name, *args, **kwargs)
        in_force = _in_force
        if service_name == "s3" and in_force is not None:
            in_force.speed_up(self, made, args, kwargs)
        return made

    client.verbs3_original = original  # type: ignore[attr-defined]
    return client


def _place_of(url: str) -> tuple[str | None, int]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _answers(path: str) -> bool:
    """Whether a process listens at the socket. Says nothing of its keys."""
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
