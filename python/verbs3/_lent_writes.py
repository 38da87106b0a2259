"""PutObject and UploadPart of a boto3 client by lent memory, where they can.

botocore's event `before-call` comes before a request is signed and sent, so a body is neither hashed
nor copied for that. An answer that is no success is not told: HTTP is asked then, and its answer is
the client's, retries and exceptions included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from . import _native
from ._asking import headers_of

if TYPE_CHECKING:
    from ._boto_client import LateConnection

# What a body is read by, where it is a file.
PIECE_BYTES = 1 << 20
# What is not the object's, and says nothing to a gateway.
_IGNORED = frozenset({"expect", "user-agent", "x-amzn-trace-id"})
_CHECKSUMS = frozenset({"crc32", "crc32c", "crc64nvme"})
_CHECKSUM_HEADER = "x-amz-checksum-"


class LentWrites:
    """The handler that sends writes by lent memory. `fast` and `slow` count what went which way."""

    def __init__(
        self,
        connection: LateConnection,
        events: Any,
        find_target: Callable[[str], tuple[str, str] | None],
    ):
        self._connection = connection
        self._events = events
        self._find_target = find_target
        self.fast = 0
        self.slow = 0

    def __call__(
        self,
        model: Any,
        params: dict[str, Any],
        context: dict[str, Any],
        request_signer: Any,
        **_: Any,
    ) -> Any:
        if model.name not in ("PutObject", "UploadPart"):
            return None
        is_signed = self._is_signed(model.name, context, request_signer)
        answer = self._send(model, params, context) if is_signed else None
        if answer is None:
            self.slow += 1
        else:
            self.fast += 1
        return answer

    def _is_signed(self, operation: str, context: dict[str, Any], signer: Any) -> bool:
        """Whether botocore would sign the request: a connection proves a key."""
        from botocore import UNSIGNED

        version = signer.signature_version
        _, chosen = self._events.emit_until_response(
            f"choose-signer.s3.{operation}",
            signing_name=signer.signing_name,
            region_name=signer.region_name,
            signature_version=version,
            context=context,
        )
        return (version if chosen is None else chosen) is not UNSIGNED and context.get("auth_type") != "none"

    def _send(self, model: Any, params: dict[str, Any], context: dict[str, Any]) -> Any:
        """Returns an answer and what it says. `None`: this write goes over HTTP."""
        url = urlsplit(params["url"])
        target, part = self._find_target(params["url"]), part_of(url.query)
        checksum = wanted_checksum(context, params["headers"])
        body = find_body(params["body"])
        if target is None or part is None or checksum is None or body is None:
            return None
        headers = written_headers(params["headers"], checksum, body.bytes)
        native = self._connection.find_native()
        if headers is None or native is None:
            return None
        try:
            writer = native.begin_write(body.bytes, checksum.name, waits=False)
            try:
                body.feed_writer(writer)
                status, answered, document = writer.finish(*target, part.of_upload, headers)
            finally:
                # Frames of an exception that is kept must not keep its memory.
                del writer
        except _native.LendingError:
            # No memory left, or the gateway is away, or does not know of writes. What became of one
            # that was sent nobody knows: it is tried again, as botocore would.
            body.rewind()
            return None
        if not 200 <= status < 300:
            body.rewind()
            return None
        return answer_as_http(model, params["url"], status, answered, document)


@dataclass(frozen=True)
class WrittenPart:
    """Which part of an upload a body is: upload and number. `None`: it is the object."""

    of_upload: tuple[str, int] | None


def part_of(query: str) -> WrittenPart | None:
    """`None`: the query asks for anything else, too."""
    asked = parse_qs(query, keep_blank_values=True)
    asked.pop("x-id", None)
    if not asked:
        return WrittenPart(None)
    number, upload_id = asked.pop("partNumber", [""]), asked.pop("uploadId", [""])
    if asked or len(number) != 1 or len(upload_id) != 1 or not upload_id[0]:
        return None
    digits = number[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 9):
        return None
    return WrittenPart((upload_id[0], int(digits)))


@dataclass(frozen=True)
class WantedChecksum:
    """A checksum that botocore would add. `None`: it would add none."""

    name: str | None
    header: tuple[str, str] | None


def wanted_checksum(context: dict[str, Any], given: Any) -> WantedChecksum | None:
    """`None`: it would add one that is not known here. A checksum that a handler has given goes
    along, and none is added to it."""
    if any(name.lower().startswith(_CHECKSUM_HEADER) for name in given):
        return WantedChecksum(None, None)
    wanted = context.get("checksum", {})
    algorithm = wanted.get("request_algorithm")
    if algorithm is None:
        return WantedChecksum(None, None)
    if not isinstance(algorithm, dict) or algorithm.get("algorithm") not in _CHECKSUMS:
        return None
    told = wanted.get("request_algorithm_header")
    header = None if told is None else (told["name"].lower(), told["value"])
    return WantedChecksum(algorithm["algorithm"], header)


def written_headers(given: Any, checksum: WantedChecksum, length: int) -> list[tuple[str, str]] | None:
    """Headers that say what the object is. `None`: one is not known here, or comes twice."""
    written: dict[str, str] = {}
    for name, value in given.items():
        name = name.lower()
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        if name == "content-length":
            if text != str(length):
                return None
        elif _native.NativeClient.is_write_header(name):
            if name in written:
                return None
            written[name] = text
        elif name not in _IGNORED:
            return None
    if checksum.header is not None:
        written.setdefault(*checksum.header)
    return list(written.items())


class WrittenBody:
    """A body in memory."""

    def __init__(self, body: Any):
        self._view = memoryview(body).cast("B")
        self.bytes = len(self._view)

    def feed_writer(self, writer: _native.NativeWriter) -> None:
        writer.append(self._view)

    def rewind(self) -> None: ...


class WrittenFile(WrittenBody):
    """A body that is read out of a file, from where the file is. Those of boto3's transfers tell
    their progress, from `signal_transferring` on and when they are closed."""

    def __init__(self, file: Any, start: int, length: int):
        self._file = file
        self._start = start
        self.bytes = length

    def feed_writer(self, writer: _native.NativeWriter) -> None:
        self._signal("signal_transferring")
        left = self.bytes
        while left:
            piece = self._file.read(min(left, PIECE_BYTES))
            if not isinstance(piece, bytes | bytearray):
                raise _native.LendingError("the file is one of text")
            if not piece:
                # It is shorter than it was. HTTP knows what to say.
                return
            writer.append(piece)
            left -= len(piece)

    def rewind(self) -> None:
        self._file.seek(self._start)
        self._signal("signal_not_transferring")

    def _signal(self, name: str) -> None:
        signal = getattr(self._file, name, None)
        if signal is not None:
            signal()


def find_body(body: Any) -> WrittenBody | None:
    """`None`: nobody can say how long it is, or send it a second time."""
    from botocore.utils import determine_content_length

    if isinstance(body, bytes | bytearray):
        return WrittenBody(body)
    if not hasattr(body, "read") or not hasattr(body, "seek") or not hasattr(body, "tell"):
        return None
    try:
        start = body.tell()
        length = determine_content_length(body)
    except (OSError, ValueError):
        return None
    return None if length is None or length < 0 else WrittenFile(body, start, length)


def answer_as_http(
    model: Any, url: str, status: int, answered: list[tuple[str, bytes]], document: _native.NativeBody
) -> tuple[Any, dict[str, Any]]:
    """The answer as botocore's own sending would give it, and what its parser says of it."""
    from botocore.awsrequest import AWSResponse, HeadersDict
    from botocore.endpoint import convert_to_response_dict
    from botocore.parsers import create_parser

    from ._boto_client import LentRaw

    answer = AWSResponse(url, status, HeadersDict(headers_of(answered)), LentRaw(document))
    shown = convert_to_response_dict(answer, model)
    parsed = create_parser("rest-xml").parse(shown, model.output_shape)
    parsed["ResponseMetadata"]["RetryAttempts"] = 0
    return answer, parsed
