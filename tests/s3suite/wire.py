"""Owns HTTP over a bare socket: what no S3 library would send (wrong lengths, cut connections, bent signatures).

One connection a request. Every answer is recorded. Knows nothing of what S3 should answer.
"""

import http.client
import socket
from dataclasses import replace
from datetime import timedelta

import sigv4
from answer import Answer
from chunked import Upload
from endpoint import REGION, Endpoint
from record import Recorder, error_code, xml
from sigv4 import Signer, sha256

TIMEOUT_SECONDS = 30
# Whether a refusal still arrives once our side is closed is a matter of timing: one record for both.
CUT_REFUSED = "refused, or the connection closed"


class Wire:
    """`wire.call("PUT", bucket, key, body=b"…")` signs and sends; the other methods send what is not quite right."""

    def __init__(self, to: Endpoint, recorder: Recorder, label: str = ""):
        self.to = to
        self.recorder = recorder
        self.label = label

    def signer(self, skew_seconds: int = 0, **changes) -> Signer:
        made = Signer(self.to.access_key, self.to.secret_key, REGION)
        return replace(made, now=made.now + timedelta(seconds=skew_seconds), **changes)

    @staticmethod
    def path(bucket: str = "", key: str = "") -> str:
        return sigv4.uri(f"/{bucket}/{key}" if key else f"/{bucket}")

    def call(self, method: str, bucket: str = "", key: str = "", query: list = (), headers: dict | None = None, body: bytes = b"",
             *, payload: str | None = None, signer: Signer | None = None, authority: str | None = None, path: str | None = None) -> Answer:
        """A signed request. PAYLOAD: the x-amz-content-sha256 to claim instead of the body's own."""
        signer = signer or self.signer()
        path = path or self.path(bucket, key)
        headers = {"host": authority or self.to.authority} | {name.lower(): value for name, value in (headers or {}).items()}
        if body and "content-length" not in headers:
            headers["content-length"] = str(len(body))
        if method in ("PUT", "POST"):
            headers.setdefault("content-length", "0")
        signed = signer.authorize(method, path, list(query), headers, payload or sha256(body))
        return self.send(method, target(path, list(query)), signed, body)

    def upload(self, bucket: str, key: str, upload: Upload, *, headers: dict | None = None, signer: Signer | None = None,
               query: list = (), content_length: int | None = None, send_bytes: int | None = None) -> Answer:
        """A PUT in aws-chunked form. SEND_BYTES: how much of the framed body really goes before the connection is closed."""
        signer = signer or self.signer()
        path = self.path(bucket, key)
        framed_bytes = len(upload.frames(signer, "0" * 64))
        head = {"host": self.to.authority} | upload.headers() | (headers or {})
        head["content-length"] = str(framed_bytes if content_length is None else content_length)
        signed = signer.authorize("PUT", path, list(query), head, upload.form)
        body = upload.frames(signer, signed["Authorization"].rsplit("=", 1)[1])
        return self.send("PUT", target(path, list(query)), signed, body if send_bytes is None else body[:send_bytes], cut=send_bytes is not None)

    def presigned(self, method: str, bucket: str, key: str, expires: int = 300, *, headers: dict | None = None, body: bytes = b"",
                  query: list = (), signer: Signer | None = None, bend=None, send_method: str | None = None) -> Answer:
        """A request signed in its query string. BEND changes the finished list of parameters; SEND_METHOD the verb."""
        signer = signer or self.signer()
        path = self.path(bucket, key)
        head = {"host": self.to.authority} | (headers or {})
        signed = signer.presign(method, path, list(query), head, expires)
        if bend:
            signed = bend(signed)
        if body or method == "PUT":
            head["content-length"] = str(len(body))
        return self.send(send_method or method, target(path, signed), head, body)

    def send(self, method: str, request_target: str, headers: dict | list, body: bytes = b"", *, cut: bool = False) -> Answer:
        """Sends exactly this. CUT: nothing more will come (the sending side is closed), whatever Content-Length said."""
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        head = "".join([f"{method} {request_target} HTTP/1.1\r\n"] + [f"{name}: {value}\r\n" for name, value in pairs] + ["\r\n"])
        with socket.create_connection((self.to.host, self.to.port), timeout=TIMEOUT_SECONDS) as connection:
            try:
                connection.sendall(head.encode() + body)
                if cut:
                    connection.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # The service answered early and closed; its answer is still to be read.
            return self.receive(method, connection, cut)

    def first_head(self, method: str, request_target: str, headers: dict) -> bytes:
        """The first head that comes back, a 100 included; unrecorded, as HTTP libraries don't show it."""
        head = "".join([f"{method} {request_target} HTTP/1.1\r\n"] + [f"{name}: {value}\r\n" for name, value in headers.items()] + ["\r\n"])
        with socket.create_connection((self.to.host, self.to.port), timeout=TIMEOUT_SECONDS) as connection:
            connection.sendall(head.encode())
            with connection.makefile("rb") as answer:
                return b"".join(iter(answer.readline, b"\r\n")) + b"\r\n"

    def receive(self, method: str, connection: socket.socket, cut: bool = False) -> Answer:
        response = http.client.HTTPResponse(connection, method=method)
        try:
            response.begin()
            body = response.read()
        except (http.client.HTTPException, ConnectionError):
            return Answer(self.recorder.observe(f"{method} raw{self.label}", CUT_REFUSED if cut else "connection closed"), 0, "closed", [], b"")
        headers = response.getheaders()
        if cut and 400 <= response.status < 500:
            step = self.recorder.observe(f"{method} raw{self.label}", CUT_REFUSED)
            return Answer(step, response.status, error_code(xml(body)) if body[:1] == b"<" else None, headers, body)
        step = self.recorder.answer(f"{method} raw{self.label}", response.status, headers, None if method == "HEAD" else body)
        return Answer(step, response.status, error_code(xml(body)) if body[:1] == b"<" else None, headers, body)


def target(path: str, query: list[tuple[str, str]]) -> str:
    return f"{path}?{sigv4.canonical_query(query)}" if query else path
