"""S3's errors as an exception: code, message and request, out of the answer's document."""

from __future__ import annotations

from xml.etree import ElementTree

# What a HEAD's error is called: it has no document.
_CODES = {403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange"}


class S3Error(Exception):
    """The gateway or the store refused a read.

    `status` is HTTP's, `code` is S3's (`NoSuchKey`, `AccessDenied`, `SlowDown`, …).
    """

    def __init__(self, status: int, code: str, message: str, request_id: str):
        super().__init__(f"{code} ({status}): {message or 'no message'} (request {request_id})")
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id

    def __reduce__(self) -> tuple[type[S3Error], tuple[int, str, str, str]]:
        return S3Error, (self.status, self.code, self.message, self.request_id)


def error_of_answer(status: int, headers: dict[str, str], document: bytes) -> S3Error:
    """Makes the exception for an answer that is no success."""
    code, message = _CODES.get(status, str(status)), ""
    try:
        root = ElementTree.fromstring(document)
        code, message = root.findtext("Code") or code, root.findtext("Message") or ""
    except ElementTree.ParseError:
        pass  # A HEAD, a 304, or a store's own page.
    return S3Error(status, code, message, headers.get("x-amz-request-id", ""))
