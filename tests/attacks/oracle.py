"""Owns a second opinion on signatures of version 4: whether a request, as it is sent, carries one that holds.

Written from "Authenticating Requests (AWS Signature Version 4)", S3 API reference; shares no code with botocore, which signs, nor with the
product. Where the reference leaves open how a request is read, several readings are tried (`LOOSE`): each names the same resource.
"""

import hashlib
import hmac
import itertools
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import quote_from_bytes, unquote_to_bytes

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW = timedelta(minutes=15)
WEEK = 7 * 24 * 3600
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
OF_URLS = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature")
AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 *Credential=([^,]*), *SignedHeaders=([^,]*), *Signature=([^,]*)$")


class Refused(Exception):
    pass


@dataclass(frozen=True)
class Reading:
    """What the reference leaves open."""

    plus_is_space: bool = False
    keeps_empty_pairs: bool = False
    sorts_by_name_alone: bool = False
    path_as_sent: bool = False


STRICT = Reading()
LOOSE = [Reading(*flags) for flags in itertools.product((False, True), repeat=4)]


def hmac_sha256(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()


def encode(data: bytes, safe: str = "") -> str:
    return quote_from_bytes(data, safe="-_.~" + safe)


def canonical_query(query: str, reading: Reading) -> str:
    pairs = []
    for pair in query.split("&") if query else []:
        if not pair and not reading.keeps_empty_pairs:
            continue
        name, _, value = pair.partition("=")
        if reading.plus_is_space:
            name, value = name.replace("+", "%20"), value.replace("+", "%20")
        name, value = unquote_to_bytes(name), unquote_to_bytes(value)
        if name == b"X-Amz-Signature":
            continue
        pairs.append((encode(name), encode(value)))
    pairs.sort(key=(lambda pair: pair[0]) if reading.sorts_by_name_alone else None)
    return "&".join(f"{name}={value}" for name, value in pairs)


def fold(value: str) -> str:
    return re.sub(r"[ \t]+", " ", value.strip(" \t"))


def header_lines(headers: list[tuple[str, str]], listed: str) -> str:
    lines = []
    for name in listed.split(";"):
        values = [fold(value) for found, value in headers if found.lower() == name]
        if not values:
            raise Refused(f"{name} is listed and was not sent")
        lines.append(f"{name}:{','.join(values)}\n")
    return "".join(lines)


def check_listed(headers: list[tuple[str, str]], listed: str):
    names = listed.split(";")
    for name in {found.lower() for found, _ in headers}:
        if name.startswith("x-amz-") and name != "x-amz-content-sha256" and name not in names:
            raise Refused(f"{name} was not signed")
    if "host" not in names:
        raise Refused("host was not signed")


def parse_time(text: str) -> datetime:
    if not re.fullmatch(r"[0-9]{8}T[0-9]{6}Z", text):
        raise Refused("no date")
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError as error:
        raise Refused("no date") from error


def signing_key(secrets: dict[str, str], credential: str, stamp: str) -> tuple[bytes, str]:
    parts = credential.split("/")
    if len(parts) != 5:
        raise Refused("the credential is not of five parts")
    access, day, region, service, end = parts
    if access not in secrets:
        raise Refused("nobody has this key")
    if service != "s3" or end != "aws4_request" or day != stamp[:8]:
        raise Refused("the scope is another")
    key = f"AWS4{secrets[access]}".encode()
    for part in parts[1:]:
        key = hmac_sha256(key, part)
    return key, "/".join(parts[1:])


def single(headers: list[tuple[str, str]], name: str) -> str | None:
    values = [value for found, value in headers if found.lower() == name]
    if len(values) > 1:
        raise Refused(f"{name} came twice")
    return fold(values[0]) if values else None


def check_streaming(body: bytes, key: bytes, stamp: str, scope: str, seed: str):
    """The signature of each chunk, over its bytes and the one before."""
    previous, rest, empty = seed, body, hashlib.sha256(b"").hexdigest()
    while True:
        match = re.match(rb"([0-9a-fA-F]+);chunk-signature=([0-9a-f]{64})\r\n", rest)
        if not match:
            raise Refused("no chunk")
        size, given = int(match[1], 16), match[2].decode()
        data, rest = rest[match.end() : match.end() + size], rest[match.end() + size :]
        if len(data) != size or rest[:2] != b"\r\n":
            raise Refused("a chunk is cut short")
        rest = rest[2:]
        to_sign = "\n".join([f"{ALGORITHM}-PAYLOAD", stamp, scope, previous, empty, hashlib.sha256(data).hexdigest()])
        previous = hmac_sha256(key, to_sign).hex()
        if previous != given:
            raise Refused("a chunk's signature")
        if not size:
            if rest:
                raise Refused("something after the last chunk")
            return


@dataclass
class Judge:
    """Judges requests as they are sent; HEADERS in their order. SECRETS: by access key."""

    secrets: dict[str, str]

    def why_not(self, request, reading: Reading = STRICT) -> str:
        """Empty where the signature holds by the reference."""
        try:
            check(request.method, request.target, request.headers, request.body, self.secrets, reading)
            return ""
        except Refused as refused:
            return str(refused)

    def holds_by(self, request, readings: list[Reading]) -> bool:
        return not all(self.why_not(request, reading) for reading in readings)


def check(method: str, target: str, headers: list[tuple[str, str]], body: bytes, secrets: dict[str, str], reading: Reading):
    path, _, query = target.partition("?")
    parameters = [pair.partition("=")[::2] for pair in query.split("&")]
    decoded = [unquote_to_bytes(name).decode("utf-8", "replace") for name, _ in parameters]
    by_url = "X-Amz-Algorithm" in decoded or "X-Amz-Signature" in decoded
    authorization = [value for name, value in headers if name.lower() == "authorization"]
    if len(authorization) + by_url != 1:
        raise Refused("not signed once")
    if by_url:
        if any(decoded.count(name) != 1 for name in OF_URLS):
            raise Refused("a parameter of the signature is missing, or came twice")
        values = {
            name: unquote_to_bytes(value.replace("+", "%20") if reading.plus_is_space else value).decode("utf-8", "surrogateescape")
            for name, value in zip(decoded, (value for _, value in parameters), strict=True)
        }
        if values["X-Amz-Algorithm"] != ALGORITHM:
            raise Refused("another algorithm")
        credential, listed, signature, stamp = (
            values[name] for name in ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date")
        )
        if not re.fullmatch("[0-9]{1,6}", values["X-Amz-Expires"]) or int(values["X-Amz-Expires"]) > WEEK:
            raise Refused("no validity")
        began = parse_time(stamp)
        now = datetime.now(timezone.utc)
        if now < began - SKEW or now > began + timedelta(seconds=int(values["X-Amz-Expires"])):
            raise Refused("out of its time")
        payload = "UNSIGNED-PAYLOAD"
        claimed = single(headers, "x-amz-content-sha256")
    else:
        match = AUTHORIZATION.match(authorization[0].strip(" \t"))
        if not match:
            raise Refused("the authorization can't be read")
        credential, listed, signature = match.groups()
        stamp = single(headers, "x-amz-date") or ""
        if abs(datetime.now(timezone.utc) - parse_time(stamp)) > SKEW:
            raise Refused("out of its time")
        payload = claimed = single(headers, "x-amz-content-sha256")
        if payload is None:
            raise Refused("no hash of the payload")
    check_listed(headers, listed)
    single(headers, "host")
    key, scope = signing_key(secrets, credential, stamp)
    canonical_path = path if reading.path_as_sent else encode(unquote_to_bytes(path), "/")
    canonical = "\n".join(
        [method, canonical_path, canonical_query(query, reading), header_lines(headers, listed), listed, payload]
    )
    to_sign = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()])
    if not hmac.compare_digest(hmac_sha256(key, to_sign).hex().encode(), signature.encode("utf-8", "surrogateescape")):
        raise Refused("the signature")
    if claimed == STREAMING:
        check_streaming(body, key, stamp, scope, signature)
    elif claimed is not None and claimed != "UNSIGNED-PAYLOAD" and claimed != hashlib.sha256(body).hexdigest():
        raise Refused("the body's hash")
