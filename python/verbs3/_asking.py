"""What a read asks for, and what its answer says: ranges, expected lengths, headers, sizes."""

from __future__ import annotations

from typing import Any, TypeAlias

from . import _native
from ._errors import error_of_answer

# How long an object is taken to be whose length nobody has said. A longer one takes a second try.
EXPECTED_BYTES = 1 << 20
# Room for an error's document, where a range says how much is wanted.
DOCUMENT_BYTES = 8192

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "B": 1}

ReadRange: TypeAlias = tuple[int, int | None] | str | None
Answer: TypeAlias = tuple[int, list[tuple[str, bytes]], _native.NativeBody]


def describe_read(range: ReadRange, if_match: str | None) -> tuple[list[tuple[str, str]], int]:
    """The headers of a read, and how long its answer is at most."""
    headers = [] if if_match is None else [("if-match", if_match)]
    if range is None:
        return headers, EXPECTED_BYTES
    if isinstance(range, str):
        return [*headers, ("range", range)], expected_bytes(range)
    start, stop = range
    if stop is None:
        if start < 0:
            raise ValueError(f"the range begins at {start}; the last bytes are 'bytes=-N'")
        return [*headers, ("range", f"bytes={start}-")], EXPECTED_BYTES
    if not 0 <= start < stop:
        raise ValueError(f"the range {start}..{stop} holds no byte")
    return [*headers, ("range", f"bytes={start}-{stop - 1}")], max(stop - start, DOCUMENT_BYTES)


def expected_bytes(range_header: str) -> int:
    """How long the answer to a range is at most."""
    first, dash, last = range_header.removeprefix("bytes=").partition("-")
    if dash and last.isdigit() and (not first or first.isdigit()):
        wanted = int(last) - int(first) + 1 if first else int(last)
        return max(wanted, DOCUMENT_BYTES)
    return EXPECTED_BYTES


def view_of_answer(answer: Answer) -> memoryview:
    """A view of the body, or the error that the answer is."""
    status, answered, body = answer
    if status >= 300:
        raise error_of_answer(status, headers_of(answered), bytes(body))
    return memoryview(body)


def views_of_answer(answer: Answer) -> list[memoryview]:
    """Views of the parts of the body as they lie, or the error that the answer is."""
    status, answered, body = answer
    if status >= 300:
        raise error_of_answer(status, headers_of(answered), bytes(body))
    return [memoryview(segment) for segment in body.segments()]


def etag_of_answer(answer: Answer) -> str:
    """The ETag of an object that was written, or the error that the answer is."""
    status, answered, body = answer
    if status >= 300:
        raise error_of_answer(status, headers_of(answered), bytes(body))
    return headers_of(answered)["etag"]


def copy_answer(answer: Answer, into: Any) -> int:
    """Copies the body to the beginning of a buffer, and returns its length."""
    status, answered, body = answer
    if status >= 300:
        raise error_of_answer(status, headers_of(answered), bytes(body))
    target = memoryview(into).cast("B")
    if len(target) < len(body):
        raise ValueError(f"the object has {len(body)} bytes, and there is room for {len(target)}")
    body.copy_into(target[: len(body)])
    return len(body)


def headers_of(answered: list[tuple[str, bytes]]) -> dict[str, str]:
    """Headers as HTTP's clients show them; one that came several times is one with commas."""
    headers: dict[str, str] = {}
    for name, value in answered:
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def bytes_of(size: int | str) -> int:
    """A number of bytes, or such a text as `"64MiB"`."""
    if isinstance(size, int):
        return size
    for unit, factor in _UNITS.items():
        if size.endswith(unit):
            return int(size.removesuffix(unit)) * factor
    raise ValueError(f"{size!r} is no size such as '64MiB'")
