"""boto3's transfer manager and resources: large objects in parallel parts and ranges, from 8 to 64 MiB."""

import hashlib
import io
import threading

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from client import boto
from data import ALGORITHMS, MIB, made

PARTS = TransferConfig(multipart_threshold=8 * MIB, multipart_chunksize=8 * MIB, max_concurrency=4, use_threads=True)
SIZES = [8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 17 * MIB + 3, 64 * MIB]


def upload(client, bucket: str, key: str, data: bytes, **arguments) -> None:
    client.upload_fileobj(io.BytesIO(data), bucket, key, Config=PARTS, **arguments)


def download(client, bucket: str, key: str) -> bytes:
    into = io.BytesIO()
    client.download_fileobj(bucket, key, into, Config=PARTS)
    return into.getvalue()


@pytest.mark.parametrize("size", SIZES)
def test_a_large_object_goes_up_and_comes_down(writer, reader, bucket, size):
    data = made(size, "transfer")
    upload(boto(writer), bucket, "large", data)
    assert download(boto(reader), bucket, "large") == data
    body = boto(reader).get_object(Bucket=bucket, Key="large")["Body"]
    assert hashlib.sha256(body.read()).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_transfer_with_each_checksum(writer, reader, bucket, algorithm):
    data = made(17 * MIB, algorithm)
    upload(boto(writer), bucket, "large", data, ExtraArgs={"ChecksumAlgorithm": algorithm})
    assert download(boto(reader), bucket, "large") == data


def test_a_large_copy_goes_by_parts(writer, reader, bucket):
    data = made(20 * MIB + 1, "copy")
    client = boto(writer)
    upload(client, bucket, "source", data)
    client.copy({"Bucket": bucket, "Key": "source"}, bucket, "copy", Config=PARTS)
    assert download(boto(reader), bucket, "copy") == data


def test_metadata_travels_with_the_parts(writer, reader, bucket):
    upload(boto(writer), bucket, "large", made(9 * MIB), ExtraArgs={"Metadata": {"a": "1"}, "ContentType": "text/x-suite"})
    head = boto(reader).head_object(Bucket=bucket, Key="large")
    assert (head["Metadata"], head["ContentType"]) == ({"a": "1"}, "text/x-suite")


def test_an_overwritten_large_object_is_never_half_old(writer, reader, bucket):
    out, into = boto(writer), boto(reader)
    for turn in range(3):
        data = made(18 * MIB, f"turn {turn}")
        upload(out, bucket, "large", data)
        assert download(into, bucket, "large") == data


def test_readers_of_an_overwrite_see_one_version_or_the_other(writer, reader, bucket):
    versions = [made(5 * MIB, f"version {number}") for number in range(6)]
    known = {hashlib.sha256(data).digest(): number for number, data in enumerate(versions)}
    out = boto(writer)
    out.put_object(Bucket=bucket, Key="object", Body=versions[0])
    done, wrong, seen = threading.Event(), [], []

    def read() -> None:
        client = boto(reader)
        newest = 0
        while not done.is_set():
            number = known.get(hashlib.sha256(client.get_object(Bucket=bucket, Key="object")["Body"].read()).digest())
            seen.append(number)
            if number is None or number < newest:
                wrong.append((number, newest))
            newest = max(newest, number or 0)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for data in versions[1:]:
        out.put_object(Bucket=bucket, Key="object", Body=data)
    done.set()
    for thread in threads:
        thread.join()
    assert seen and not wrong, f"mixed or older bytes (found, newest seen before): {wrong}"


def test_a_folder_is_read_cold_and_hot(writer, reader, bucket, tree, tree_bytes, job):
    shown = job("boto3", boto3.__version__, "a tree by the transfer manager")
    for path in tree.rglob("*"):
        if path.is_file():
            upload(boto(writer), bucket, str(path.relative_to(tree)), path.read_bytes())
    for name in ("cold", "hot"):
        with getattr(shown, name)(tree_bytes):
            listed = [entry["Key"] for entry in boto(reader).list_objects_v2(Bucket=bucket)["Contents"]]
            assert {key: download(boto(reader), bucket, key) for key in listed} == {
                str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
