"""What users write, for the type checker: it is never run."""

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import verbs3
from verbs3.safetensors import TensorPlace, read_header


def read_things(buffer: bytearray) -> None:
    reader = verbs3.connect("/run/verbs3/gateway.sock", memory="1GiB", reads_max=128)
    assert_type(reader, verbs3.Reader)
    assert_type(reader.read("train", "x"), memoryview)
    assert_type(reader.read("train", "x", (0, None), if_match='"e"'), memoryview)
    assert_type(reader.read("train", "x", into=buffer), int)
    assert_type(reader.read_many([("train", "x")]), Iterator[tuple[int, memoryview]])
    assert_type(
        reader.read_many([("train", "x", (0, 5))], errors="return"),
        Iterator[tuple[int, memoryview | verbs3.S3Error]],
    )
    assert_type(reader.read_into("train", "x", buffer, 5), int)
    assert_type(reader.read_bytes("train", "x"), bytes)
    assert_type(reader.exists_many([("train", "x")]), list[bool])
    assert_type(reader.head_many([("train", "x")]), list[dict[str, str] | None])
    with reader.open("train", "x") as file:
        assert_type(file, verbs3.ObjectFile)
        assert_type(file.read(5), bytes)
    assert_type(verbs3.exists("s3://train/x"), bool)
    assert_type(verbs3.exists(["s3://train/x"]), list[bool])
    assert_type(verbs3.patch("http://127.0.0.1:9000"), bool)
    assert_type(reader.hit_rate().rate, float | None)
    job = verbs3.preload("s3://train/", deadline=60.0, verify=True)
    assert_type(job, verbs3.PreloadJob)
    assert_type(job.bytes_there, int)
    assert_type(read_header("s3://train/m.safetensors").tensors, dict[str, TensorPlace])


async def await_things() -> None:
    async with verbs3.AsyncReader(threads=4, memory="64MiB") as reader:
        assert_type(await reader.read("train", "x"), memoryview)
        found = reader.read_many([("train", "x")])
        iterated: AsyncIterator[tuple[int, memoryview | verbs3.S3Error]] = found
        async for index, _ in iterated:
            assert_type(index, int)


def wrong_things(reader: verbs3.Reader) -> None:
    reader.read("train")  # type: ignore[call-overload]
    reader.read("train", 5)  # type: ignore[call-overload]
    reader.read_many([("train", "x")], errors="ignore")  # type: ignore[call-overload]
    verbs3.exists(5)  # type: ignore[call-overload]
