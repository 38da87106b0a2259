"""Owns bodies in aws-chunked form, the three streaming forms of S3, made by hand so that they can be made wrong.

Source: "Signature calculations for the Authorization header: transferring a payload in multiple chunks", S3 API reference.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sigv4 import Signer

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
FORMS = (SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER)
CHUNK_BYTES = 64 * 1024


@dataclass
class Upload:
    """A body and how it is to be framed. `bend` may change (index, signature) of each chunk; index -1 is the trailer."""

    data: bytes
    form: str
    trailers: list[tuple[str, str]] = field(default_factory=list)
    chunk_bytes: int = CHUNK_BYTES
    bend: Callable[[int, str], str] = lambda index, signature: signature
    decoded_length: int | None = None
    # Leaves out the last, empty chunk and what follows it.
    unfinished: bool = False

    @property
    def signed(self) -> bool:
        return self.form != UNSIGNED_TRAILER

    def headers(self) -> dict[str, str]:
        length = len(self.data) if self.decoded_length is None else self.decoded_length
        headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(length)}
        if self.trailers:
            headers["x-amz-trailer"] = ",".join(name for name, _ in self.trailers)
        return headers

    def frames(self, signer: Signer, seed: str) -> bytes:
        """The body as it goes over the wire; SEED is the signature of the request's head."""
        pieces = [self.data[at:at + self.chunk_bytes] for at in range(0, len(self.data), self.chunk_bytes)]
        out, previous = [], seed
        for index, piece in enumerate(pieces if self.unfinished else pieces + [b""]):
            if self.signed:
                previous = self.bend(index, signer.chunk(previous, piece))
                out.append(f"{len(piece):x};chunk-signature={previous}\r\n".encode())
            else:
                out.append(f"{len(piece):x}\r\n".encode())
            if piece:
                out += [piece, b"\r\n"]
        if self.unfinished:
            return b"".join(out)
        if self.form == SIGNED:
            return b"".join(out) + b"\r\n"
        out += [f"{name}:{value}\r\n".encode() for name, value in self.trailers]
        if self.signed:
            signature = self.bend(-1, signer.trailer(previous, self.trailers))
            out.append(f"x-amz-trailer-signature:{signature}\r\n".encode())
        return b"".join(out) + b"\r\n"
