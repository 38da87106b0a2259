"""Tensors of a safetensors object, straight out of lent memory.

The header is read first, then the tensors that are wanted, many at once. Each byte is copied once:
from where it has landed into its tensor, or to its device.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ._locations import parse_object
from ._native import MemoryFull, NativeBatch
from ._reader import PIECE_BYTES, Reader, take_view
from ._shared_reader import shared_reader

if TYPE_CHECKING:
    import torch

__all__ = ["TensorPlace", "load_file", "read_header"]

# The format's own bound on its header.
HEADER_BYTES_MAX = 100_000_000
# Most headers are shorter, and come with the first read.
_FIRST_READ_BYTES = 256 << 10
_LENGTH_BYTES = 8
# At most so many copies to a GPU go on while the next pieces land.
_COPIES_UNDER_WAY_MAX = 3
# How long memory is waited for that other users of the reader have.
_ROOM_TRIES = 30
_ROOM_PAUSE_SECONDS = 0.01

# What the format calls a type: torch's name for it, and its bytes.
_DTYPES = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
    "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
}


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies in its object, and what it is: `dtype` as the format writes it."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class TensorHeader:
    """What an object says it holds. `etag` names the version that says so."""

    tensors: dict[str, TensorPlace]
    metadata: dict[str, str]
    etag: str


def read_header(url: str, *, reader: Reader | None = None) -> TensorHeader:
    """Reads what tensors an object has, without their bytes.

    >>> read_header("s3://train/weights.safetensors").tensors["bias"]
    TensorPlace(dtype='F32', shape=(4,), start=80, stop=96)
    """
    reader = reader or shared_reader()
    bucket, key = parse_object(url)
    about = reader.head(bucket, key)
    etag, size = about["etag"], int(about["content-length"])
    if size < _LENGTH_BYTES:
        raise ValueError(f"{url} is no safetensors file: it has {size} bytes")
    with reader.read(bucket, key, (0, min(size, _FIRST_READ_BYTES)), if_match=etag) as first:
        length = int.from_bytes(first[:_LENGTH_BYTES], "little")
        if length > min(HEADER_BYTES_MAX, size - _LENGTH_BYTES):
            raise ValueError(f"{url} is no safetensors file: its header would have {length} bytes")
        begun = bytes(first[_LENGTH_BYTES : _LENGTH_BYTES + length])
    document = bytearray(length)
    document[: len(begun)] = begun
    if len(begun) < length:
        at = _LENGTH_BYTES + len(begun)
        reader.read_into(bucket, key, memoryview(document)[len(begun) :], at, if_match=etag)
    try:
        return _judge_header(json.loads(document), _LENGTH_BYTES + length, size, etag)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{url} is no safetensors file: {error}") from error


def _judge_header(document: dict[str, Any], base: int, size: int, etag: str) -> TensorHeader:
    metadata = document.pop("__metadata__", {})
    tensors = {}
    for name, shown in document.items():
        start, stop = (base + int(offset) for offset in shown["data_offsets"])
        if not base <= start <= stop <= size:
            raise ValueError(f"tensor {name!r} lies at {start}..{stop}, outside of the file")
        tensors[name] = TensorPlace(shown["dtype"], _judge_shape(name, shown, stop - start), start, stop)
    return TensorHeader(tensors, metadata, etag)


def _judge_shape(name: str, shown: dict[str, Any], bytes_there: int) -> tuple[int, ...]:
    """A tensor's shape, if it is as long as its bytes."""
    shape = tuple(int(length) for length in shown["shape"])
    if shown["dtype"] not in _DTYPES:
        raise ValueError(f"tensor {name!r} has dtype {shown['dtype']!r}, which is not known here")
    wanted = math.prod(shape) * _DTYPES[shown["dtype"]][1]
    if min(shape, default=0) < 0 or wanted != bytes_there:
        raise ValueError(f"tensor {name!r} of shape {shape} takes {wanted} bytes, and has {bytes_there}")
    return shape


def load_file(
    url: str,
    *,
    device: str | torch.device = "cpu",
    names: Iterable[str] | None = None,
    reader: Reader | None = None,
) -> dict[str, torch.Tensor]:
    """Loads the tensors of an object, all or those of these names, as torch's.

    On the CPU each tensor has memory of its own. For another device it goes there from the lent
    memory; to a GPU while the next bytes land, if the reader was made with `pin_for`. The tensors may
    be longer than the lent memory. All bytes are of one version.

    >>> load_file("s3://train/weights.safetensors")["bias"]
    tensor([0., 1., 2., 3.])
    """
    import torch

    reader = reader or shared_reader()
    header = read_header(url, reader=reader)
    wanted = list(header.tensors) if names is None else list(names)
    unknown = [name for name in wanted if name not in header.tensors]
    if unknown:
        raise KeyError(f"{url} has no tensor {unknown[0]!r}")
    loaded = {name: _make_tensor(header.tensors[name], device) for name in wanted}
    where = parse_object(url)
    pieces = [
        (name, at, min(at + PIECE_BYTES, place.stop))
        for name in dict.fromkeys(wanted)
        for place in (header.tensors[name],)
        for at in range(place.start, place.stop, PIECE_BYTES)
    ]
    reads = [(*where, (start, stop), header.etag) for _, start, stop in pieces]
    flat = {name: _bytes_of(tensor) for name, tensor in loaded.items()}
    batch = reader._begin_reads(reads, "raise")
    with _ViewCopies() as copies:
        while (answer := copies.take_view(batch)) is not None:
            index, view = answer
            name, start, stop = pieces[index]
            if len(view) != stop - start:
                raise ValueError(f"{url} ends inside of tensor {name!r}")
            at = start - header.tensors[name].start
            copies.copy_view(flat[name][at : at + len(view)], view)
            del answer, view
    return loaded


def _make_tensor(place: TensorPlace, device: Any) -> Any:
    import torch

    dtype = getattr(torch, _DTYPES[place.dtype][0], None)
    if dtype is None:
        raise ValueError(f"this torch has no dtype for {place.dtype}")
    return torch.empty(place.shape, dtype=dtype, device=device)


def _bytes_of(tensor: Any) -> Any:
    """The tensor's own memory, as bytes."""
    import torch

    return tensor.reshape(-1).view(torch.uint8)


class _ViewCopies:
    """Copies out of views, which are released when their copy is done: for a GPU that is later."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Any, memoryview]] = deque()

    def __enter__(self) -> _ViewCopies:
        return self

    def __exit__(self, *raised: object) -> None:
        self._finish_until(0)

    def take_view(self, batch: NativeBatch) -> tuple[int, memoryview] | None:
        """The next view of a batch. Where no memory is left for it, that of copies is given back; other
        users of the reader may give theirs back, too."""
        tries_left = _ROOM_TRIES
        while True:
            try:
                return cast("tuple[int, memoryview] | None", take_view(batch, "raise"))
            except MemoryFull:
                if not tries_left:
                    raise
                tries_left -= 1
                if not self._finish_until(0):
                    time.sleep(_ROOM_PAUSE_SECONDS)

    def copy_view(self, target: Any, view: memoryview) -> None:
        """Begins to copy a view, which is this object's from then on."""
        import warnings

        import torch

        with warnings.catch_warnings():
            # That the memory is not writable: it is only read here.
            warnings.simplefilter("ignore", UserWarning)
            source = torch.frombuffer(view, dtype=torch.uint8)
        done = _begin_copy(target, source)
        if done is None:
            view.release()
            return
        self._under_way.append((done, view))
        self._finish_until(_COPIES_UNDER_WAY_MAX)

    def _finish_until(self, left: int) -> bool:
        """Waits until no more than `left` are under way. Returns whether there was one to wait for."""
        is_some = len(self._under_way) > left
        while len(self._under_way) > left:
            done, view = self._under_way.popleft()
            done.synchronize()
            view.release()
        return is_some


def _begin_copy(target: Any, source: Any) -> Any:
    """Copies, and returns the event of its end. `None`: it is done."""
    import torch

    target.copy_(source, non_blocking=target.is_cuda)
    if not target.is_cuda:
        return None
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(target.device))
    return done
