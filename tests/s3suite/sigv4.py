"""Owns AWS Signature Version 4 by hand, so that the suite can also sign wrongly: headers, query strings and chunks.

Independent of botocore on purpose. Source: "Authenticating Requests (AWS Signature Version 4)", S3 API reference.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def uri(text: str) -> str:
    """S3's encoding of a path: everything but the unreserved characters and the slash."""
    return quote(text, safe="/-_.~")


def canonical_query(query: list[tuple[str, str]]) -> str:
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    return "&".join(f"{name}={value}" for name, value in pairs)


def hmac_sha256(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


@dataclass
class Signer:
    """One identity at one moment. Change any field to sign wrongly."""

    access_key: str
    secret_key: str
    region: str = "us-east-1"
    service: str = "s3"
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def stamp(self) -> str:
        return self.now.strftime("%Y%m%dT%H%M%SZ")

    @property
    def scope(self) -> str:
        return f"{self.now:%Y%m%d}/{self.region}/{self.service}/aws4_request"

    def key(self) -> bytes:
        key = hmac_sha256(f"AWS4{self.secret_key}".encode(), f"{self.now:%Y%m%d}")
        for part in (self.region, self.service, "aws4_request"):
            key = hmac_sha256(key, part)
        return key

    def signature(self, method: str, path: str, query: list, headers: dict, payload_hash: str) -> tuple[str, str]:
        """(signature, signed header names) of a request; HEADERS are those to sign, PATH is encoded."""
        lower = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        names = ";".join(sorted(lower))
        lines = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower))
        request = "\n".join([method, path, canonical_query(query), lines, names, payload_hash])
        to_sign = "\n".join(["AWS4-HMAC-SHA256", self.stamp, self.scope, sha256(request.encode())])
        return hmac_sha256(self.key(), to_sign).hex(), names

    def authorize(self, method: str, path: str, query: list, headers: dict, payload_hash: str) -> dict:
        """HEADERS plus x-amz-date, x-amz-content-sha256 and Authorization; all of them signed."""
        headers = headers | {"x-amz-date": self.stamp, "x-amz-content-sha256": payload_hash}
        signature, names = self.signature(method, path, query, headers, payload_hash)
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{self.scope}, SignedHeaders={names}, Signature={signature}")
        return headers

    def presign(self, method: str, path: str, query: list, headers: dict, expires: int) -> list[tuple[str, str]]:
        """QUERY plus the five parameters and the signature; the caller sends HEADERS as they are."""
        names = ";".join(sorted(name.lower() for name in headers))
        query = query + [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"), ("X-Amz-Credential", f"{self.access_key}/{self.scope}"),
            ("X-Amz-Date", self.stamp), ("X-Amz-Expires", str(expires)), ("X-Amz-SignedHeaders", names)]
        signature, _ = self.signature(method, path, query, headers, UNSIGNED)
        return query + [("X-Amz-Signature", signature)]

    def chunk(self, previous: str, data: bytes) -> str:
        to_sign = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", self.stamp, self.scope, previous, EMPTY_SHA256, sha256(data)])
        return hmac_sha256(self.key(), to_sign).hex()

    def trailer(self, previous: str, trailers: list[tuple[str, str]]) -> str:
        lines = "".join(f"{name.lower()}:{value}\n" for name, value in trailers)
        to_sign = "\n".join(["AWS4-HMAC-SHA256-TRAILER", self.stamp, self.scope, previous, sha256(lines.encode())])
        return hmac_sha256(self.key(), to_sign).hex()
