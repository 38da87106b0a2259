"""Owns the bytes that cases write: made from a seed, the same in every run, and never the same at two offsets."""

import base64
import hashlib
import zlib

from awscrt import checksums

MIB = 1 << 20
# S3's smallest part, except the last (S3 user guide, "Amazon S3 multipart upload limits").
PART_BYTES = 5 * MIB


def made(size: int, seed: str = "data") -> bytes:
    """SIZE bytes of a SHAKE-256 stream: a block at the wrong place is a difference."""
    return hashlib.shake_256(seed.encode()).digest(size)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def etag(data: bytes) -> str:
    """The ETag of a PUT without encryption, with its quotes."""
    return f'"{md5(data)}"'


def multipart_etag(parts: list[bytes]) -> str:
    return f'"{hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()}-{len(parts)}"'


ALGORITHMS = {
    "CRC32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "CRC32C": lambda data: checksums.crc32c(data).to_bytes(4, "big"),
    "CRC64NVME": lambda data: checksums.crc64nvme(data).to_bytes(8, "big"),
    "SHA1": lambda data: hashlib.sha1(data).digest(),
    "SHA256": lambda data: hashlib.sha256(data).digest(),
}


def checksum(algorithm: str, data: bytes) -> tuple[str, str]:
    """(header name, value) of x-amz-checksum-ALGORITHM."""
    return f"x-amz-checksum-{algorithm.lower()}", b64(ALGORITHMS[algorithm](data))
