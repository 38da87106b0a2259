"""Owns connections that say exactly what they are told, and requests that are signed by hand and then changed.

The signer is the S3 suite's, which shares no code with botocore nor with the product. Knows no attack, and judges no answer.
"""

import base64
import contextlib
import itertools
import json
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3suite"))

import sigv4  # noqa: E402
from processes import OWNER, Key  # noqa: E402
from sigv4 import Signer  # noqa: E402

REGION = "us-east-1"
# For what must happen: a machine under load takes its time.
PATIENCE = 60
# Attackers have addresses of their own, as they would have: bounds are kept by address.
_hosts = itertools.count(2)


def new_address() -> str:
    """A loopback address that nobody else in this run attacks from."""
    number = next(_hosts)
    return f"127.1.{number // 250}.{number % 250 + 1}"


@dataclass
class Answer:
    """STATUS 0: the connection was closed without an answer."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    @property
    def code(self) -> str:
        return self.body.split(b"<Code>")[1].split(b"<")[0].decode() if b"<Code>" in self.body else ""

    @property
    def verdict(self) -> str:
        return f"{self.status} {self.code}".strip()

    def header(self, name: str) -> str:
        return next((value for found, value in self.headers if found.lower() == name), "")


class Line:
    """A connection. `say` ignores that the other side has gone: what it answered is still to be read."""

    def __init__(self, port: int, source: str | None = None, wrap=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if wrap:
            self.socket = wrap(self.socket)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.close()

    def say(self, data: bytes) -> bool:
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def read_more(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            raise
        except OSError:
            return False
        self.buffer += data
        return bool(data)

    def read_answer(self, method: str = "GET") -> Answer:
        """The next answer, interim ones left out."""
        while True:
            while b"\r\n\r\n" not in self.buffer:
                if not self.read_more():
                    return Answer(0)
            head, rest = self.buffer.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            status = int(lines[0].split()[1])
            self.buffer = rest
            if status >= 200:
                break
        headers = [tuple(line.split(": ", 1)) for line in lines[1:] if ": " in line]
        answer = Answer(status, headers)
        if method == "HEAD" or status in (204, 304):
            return answer
        length = answer.header("content-length")
        if length:
            while len(self.buffer) < int(length):
                if not self.read_more():
                    return Answer(0, headers, self.buffer)
            answer.body, self.buffer = self.buffer[: int(length)], self.buffer[int(length) :]
        elif answer.header("transfer-encoding"):
            answer.body = self.read_chunked()
        else:
            while self.read_more():
                pass
            answer.body, self.buffer = self.buffer, b""
        return answer

    def read_chunked(self) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in self.buffer:
                if not self.read_more():
                    return body
            length, rest = self.buffer.split(b"\r\n", 1)
            size = int(length, 16)
            while len(rest) < size + 2:
                self.buffer = b""
                if not self.read_more():
                    return body + rest
                rest += self.buffer
            body, self.buffer = body + rest[:size], rest[size + 2 :]
            if size == 0:
                return body

    def is_closed(self) -> bool:
        """Whether the other side has ended the connection by now; what it said is kept."""
        self.socket.setblocking(False)
        try:
            while True:
                data = self.socket.recv(65536)
                if not data:
                    return True
                self.buffer += data
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            # TLS says so by errors of its own.
            return type(error).__name__ not in ("SSLWantReadError", "SSLWantWriteError")
        finally:
            self.socket.settimeout(PATIENCE)

    def await_end(self, seconds: float = PATIENCE) -> float:
        """Until the other side ends it; how long that took."""
        began = time.monotonic()
        while not self.is_closed():
            assert time.monotonic() - began < seconds, "the connection is still open"
            time.sleep(0.05)
        return time.monotonic() - began


def await_all_ended(lines: list[Line], seconds: float = PATIENCE, what: str = ""):
    """Until every one of them was ended by the other side."""
    end, left = time.monotonic() + seconds, list(lines)
    while left:
        left = [line for line in left if not line.is_closed()]
        assert time.monotonic() < end, f"{len(left)} of {len(lines)} connections are still open: {what}"
        time.sleep(0.05)


def await_that(condition, what: str, seconds: float = PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@dataclass
class Signed:
    """A request as it would be sent: change what is to be changed, then send it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def add(self, *headers: tuple[str, str]) -> "Signed":
        return Signed(self.method, self.target, self.headers + list(headers), self.body)

    def without(self, name: str) -> "Signed":
        return Signed(self.method, self.target, [(found, value) for found, value in self.headers if found.lower() != name], self.body)

    def replace(self, name: str, value: str) -> "Signed":
        return self.without(name).add((name, value))

    def wire(self) -> bytes:
        head = "".join([f"{self.method} {self.target} HTTP/1.1\r\n"] + [f"{name}: {value}\r\n" for name, value in self.headers] + ["\r\n"])
        return head.encode("utf-8", "surrogateescape") + self.body


def signer(key: Key = OWNER, **changes) -> Signer:
    return Signer(key.access, key.secret, REGION, **changes)


class Peer:
    """An endpoint as one client sees it: `peer.call("PUT", "/data/k", body=b"…")` is signed, and sent over a connection of its own."""

    def __init__(self, port: int, key: Key = OWNER, source: str | None = None, wrap=None):
        self.port, self.key, self.source, self.wrap = port, key, source, wrap

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def by(self, key: Key) -> "Peer":
        return Peer(self.port, key, self.source, self.wrap)

    def line(self) -> Line:
        return Line(self.port, self.source, self.wrap)

    def signed(
        self,
        method: str,
        path: str,
        *,
        query: list = (),
        headers: dict | None = None,
        body: bytes = b"",
        payload: str | None = None,
        host: str | None = None,
        framed: bool = False,
        **changes,
    ) -> Signed:
        """By header. PATH is plain text, and encoded here. FRAMED: the caller adds what says how long the body is. CHANGES: of the signer."""
        path = sigv4.uri(path)
        head = {"host": host or self.host} | (headers or {})
        if not framed and (method in ("PUT", "POST") or body):
            head.setdefault("content-length", str(len(body)))
        made = signer(self.key, **changes).authorize(method, path, list(query), head, payload or sigv4.sha256(body))
        return Signed(method, target(path, query), list(made.items()), body)

    def presigned(
        self, method: str, path: str, *, query: list = (), headers: dict | None = None, body: bytes = b"", expires: int = 300, **changes
    ) -> Signed:
        path = sigv4.uri(path)
        head = {"host": self.host} | (headers or {})
        pairs = signer(self.key, **changes).presign(method, path, list(query), head, expires)
        if method in ("PUT", "POST") or body:
            head.setdefault("content-length", str(len(body)))
        return Signed(method, target(path, pairs), list(head.items()), body)

    def send(self, request: Signed) -> Answer:
        with self.line() as line:
            line.say(request.wire())
            return line.read_answer(request.method)

    def call(self, method: str, path: str, **how) -> Answer:
        return self.send(self.signed(method, path, **how))


def target(path: str, query) -> str:
    return f"{path}?{sigv4.canonical_query(list(query))}" if query else path


def signed_form(key: Key, host: str, name: str, length: int | None = None, body: bytes = b"") -> bytes:
    """An upload by a form, whose fields are right. LENGTH: what is announced, whatever of it comes."""
    by = signer(key)
    fields = {
        "key": name,
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-date": by.stamp,
        "x-amz-credential": f"{key.access}/{by.scope}",
    }
    policy = {"expiration": "2099-01-01T00:00:00Z", "conditions": [{"bucket": "data"}] + [{name: value} for name, value in fields.items()]}
    fields["policy"] = base64.b64encode(json.dumps(policy).encode()).decode()
    fields["x-amz-signature"] = sigv4.hmac_sha256(by.key(), fields["policy"]).hex()
    text = "".join(f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    text += '--X\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    whole = text.encode() + body + b"\r\n--X--\r\n"
    head = f"POST /data HTTP/1.1\r\nhost: {host}\r\ncontent-type: multipart/form-data; boundary=X\r\n"
    return f"{head}content-length: {length or len(whole)}\r\n\r\n".encode() + (whole if length is None else whole[:-9])
