"""Writes by lent memory: the same objects, dictionaries and exceptions as boto3's, case by case."""

import base64
import gc
import hashlib
import io
import os
import threading
import zlib

import pytest
import verbs3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.handlers import disable_signing
from boto3.s3.transfer import TransferConfig
from conftest import (
    BUCKET,
    OTHER_KEY,
    OTHER_SECRET,
    boto_arguments,
    in_child,
    kill_in_work,
    pattern,
    until,
)
from test_boto_client import outcome

BODY = b"what is written"
MD5 = base64.b64encode(hashlib.md5(BODY).digest()).decode()


pytestmark = pytest.mark.usefixtures("objects")


@pytest.fixture
def writing(gateway):
    """A client of its own, so that its counts are the test's."""
    return verbs3.client("s3", socket=gateway.socket, **boto_arguments(gateway))


CASES = [
    {},
    {"Body": b""},
    {"Body": bytearray(BODY)},
    {"Body": pattern(3_000_000)},
    {"ContentType": "text/plain", "CacheControl": "no-cache", "ContentDisposition": "attachment"},
    {"ContentEncoding": "gzip", "ContentLanguage": "de", "Metadata": {"run": "7", "Empty": ""}},
    {"ContentLength": len(BODY)},
    {"ContentMD5": MD5},
    {"ChecksumAlgorithm": "CRC32"},
    {"ChecksumAlgorithm": "SHA256"},
    {"ChecksumCRC32": base64.b64encode(bytes(4)).decode()},
    {"ContentMD5": base64.b64encode(bytes(16)).decode()},
    {"IfNoneMatch": "*"},
    {"IfMatch": '"another"'},
    {"Bucket": "no-such-bucket"},
    {"Key": "written/a b/\u00e9?&+.txt"},
    # They go over HTTP in either client.
    {"ExpectedBucketOwner": "111122223333"},
    {"ACL": "private"},
    {"WebsiteRedirectLocation": "/elsewhere"},
]


def ways(case):
    return "-".join(f"{name}={str(value)[:20]}" for name, value in case.items())[:60] or "plain"


@pytest.mark.parametrize("case", CASES, ids=ways)
@pytest.mark.parametrize("as_file", [False, True], ids=["bytes", "file"])
def test_objects_and_responses_are_those_of_boto3(plain, writing, case, as_file):
    told, stored = [], []
    for client in (plain, writing):
        asked = {"Bucket": BUCKET, "Key": "written/case", "Body": BODY, **case}
        if "IfNoneMatch" in case:
            plain.put_object(Bucket=BUCKET, Key=asked["Key"], Body=b"before")
        else:
            plain.delete_object(Bucket=BUCKET, Key=asked["Key"])
        if as_file:
            asked["Body"] = io.BytesIO(bytes(asked["Body"]))
        told.append(outcome(client.put_object, **asked))
        found = outcome(plain.get_object, Bucket=BUCKET, Key=asked["Key"], ChecksumMode="ENABLED")
        if isinstance(found, dict):
            found.pop("LastModified")
            found["ResponseMetadata"]["HTTPHeaders"].pop("last-modified")
        stored.append(found)
    assert told[0] == told[1]
    assert stored[0] == stored[1]


def test_what_was_meant_to_go_by_lent_memory_did(writing):
    for case in ({}, {"Body": b""}, {"Body": io.BytesIO(BODY)}, {"Metadata": {"run": "7"}}):
        writing.put_object(**{"Bucket": BUCKET, "Key": "written/fast", "Body": BODY, **case})
    assert (writing.verbs3.writes.fast, writing.verbs3.writes.slow) == (4, 0)
    writing.put_object(Bucket=BUCKET, Key="written/slow", Body=BODY, ACL="private")
    assert (writing.verbs3.writes.fast, writing.verbs3.writes.slow) == (4, 1)


def test_a_file_is_written_from_where_it_is(plain, writing):
    file = io.BytesIO(b"head" + BODY)
    file.seek(4)
    writing.put_object(Bucket=BUCKET, Key="written/rest", Body=file)
    assert plain.get_object(Bucket=BUCKET, Key="written/rest")["Body"].read() == BODY
    assert writing.verbs3.writes.fast == 1


def test_a_body_for_which_there_is_no_memory_goes_over_http(plain, gateway):
    client = verbs3.client("s3", socket=gateway.socket, memory="4MiB", **boto_arguments(gateway))
    body = pattern(5_000_000)
    client.put_object(Bucket=BUCKET, Key="written/long", Body=io.BytesIO(body))
    assert client.verbs3.writes.slow == 1
    assert plain.get_object(Bucket=BUCKET, Key="written/long")["Body"].read() == body


def test_what_may_not_be_written_is_not(plain, gateway):
    client = verbs3.client(
        "s3", socket=gateway.socket, **boto_arguments(gateway, OTHER_KEY, OTHER_SECRET)
    )
    other = outcome(client.put_object, Bucket=BUCKET, Key="not/mine", Body=BODY)
    assert other[2]["Error"]["Code"] == "AccessDenied"
    assert outcome(plain.head_object, Bucket=BUCKET, Key="not/mine")[0] == "ClientError"


@pytest.mark.parametrize("length", [0, 100, 8 << 20, (20 << 20) + 7])
def test_transfers_write_and_tell_their_progress(plain, writing, tmp_path, length):
    body = pattern(length)
    (tmp_path / "file").write_bytes(body)
    told, lock = [], threading.Lock()

    def tell(count):
        with lock:
            told.append(count)

    config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=4)
    writing.upload_file(str(tmp_path / "file"), BUCKET, "written/file", Config=config, Callback=tell)
    assert sum(told) == length
    assert plain.get_object(Bucket=BUCKET, Key="written/file")["Body"].read() == body
    told.clear()
    writing.upload_fileobj(io.BytesIO(body), BUCKET, "written/object", Config=config, Callback=tell)
    assert sum(told) == length
    assert plain.get_object(Bucket=BUCKET, Key="written/object")["Body"].read() == body
    assert writing.verbs3.writes.slow == 0 and writing.verbs3.writes.fast > 0


def test_a_progress_that_is_taken_back_is_told_right(gateway, tmp_path, plain):
    client = verbs3.client("s3", socket=gateway.socket, **boto_arguments(gateway))
    (tmp_path / "file").write_bytes(pattern(2_000_000))
    told = []
    with pytest.raises(Exception, match="NoSuchBucket"):
        client.upload_file(str(tmp_path / "file"), "no-such-bucket", "k", Callback=told.append)
    assert client.verbs3.writes.slow == 1
    assert 0 <= sum(told) <= 2_000_000


def test_a_handler_that_adds_a_header_is_heard(plain, writing):
    def add_kind(params, **_):
        params["headers"]["x-amz-meta-kind"] = "log"

    def add_acl(params, **_):
        params["headers"]["x-amz-acl"] = "private"

    writing.meta.events.register("before-call.s3", add_kind)
    writing.put_object(Bucket=BUCKET, Key="written/handled", Body=BODY)
    assert plain.head_object(Bucket=BUCKET, Key="written/handled")["Metadata"] == {"kind": "log"}
    writing.meta.events.register("before-call", add_acl)
    writing.put_object(Bucket=BUCKET, Key="written/handled", Body=BODY)
    assert (writing.verbs3.writes.fast, writing.verbs3.writes.slow) == (1, 1)


CRC32 = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
SHA256 = base64.b64encode(hashlib.sha256(BODY).digest()).decode()


@pytest.mark.parametrize("checksum", [("CRC32", CRC32), ("SHA256", SHA256)], ids=lambda told: told[0])
def test_a_checksum_of_a_handler_goes_along_alone(plain, writing, checksum):
    name, value = checksum

    def add_checksum(params, **_):
        # In whatever case.
        params["headers"][f"X-Amz-Checksum-{name.lower()}"] = value

    writing.meta.events.register("before-call.s3.PutObject", add_checksum)
    writing.put_object(Bucket=BUCKET, Key="written/checked", Body=BODY)
    shown = plain.head_object(Bucket=BUCKET, Key="written/checked", ChecksumMode="ENABLED")
    assert {key: told for key, told in shown.items() if key.startswith("Checksum")} == {
        f"Checksum{name}": value,
        "ChecksumType": "FULL_OBJECT",
    }
    assert (writing.verbs3.writes.fast, writing.verbs3.writes.slow) == (1, 0)


def test_a_wrong_checksum_of_a_handler_is_refused_and_no_other(plain, writing):
    def add_checksum(params, **_):
        params["headers"]["x-amz-checksum-crc32"] = "AAAAAA=="

    told = []
    for client in (plain, writing):
        client.meta.events.register("before-call.s3.PutObject", add_checksum)
        told.append(outcome(client.put_object, Bucket=BUCKET, Key="written/wrong", Body=BODY))
        client.meta.events.unregister("before-call.s3.PutObject", add_checksum)
    assert told[0] == told[1] and told[0][0] == "ClientError"
    writing.put_object(Bucket=BUCKET, Key="written/right", Body=BODY)
    assert (writing.verbs3.writes.fast, writing.verbs3.writes.slow) == (1, 1)


def test_a_write_that_can_not_be_read_spoils_no_other(reader):
    def write_a_name_twice():
        writer = reader._native.begin_write(len(BODY), "crc32", waits=True)
        writer.append(BODY)
        with pytest.raises(verbs3.LendingError, match="could not finish"):
            writer.finish(BUCKET, "written/unread", None, [("x-amz-checksum-crc32", CRC32)])

    # Before the connection has written anything, and after.
    for turn in range(2):
        write_a_name_twice()
        reader.write(BUCKET, "written/after", bytes([turn]))
        assert bytes(reader.read(BUCKET, "written/after")) == bytes([turn])
    with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
        reader.head(BUCKET, "written/unread")


def test_requests_that_are_not_signed_prove_nothing(gateway):
    arguments = boto_arguments(gateway)
    arguments["config"] = arguments["config"].merge(Config(signature_version=UNSIGNED))
    unsigned = verbs3.client("s3", socket=gateway.socket, **arguments)
    disabled = verbs3.client("s3", socket=gateway.socket, **boto_arguments(gateway))
    disabled.meta.events.register("choose-signer.s3.*", disable_signing)
    for client in (unsigned, disabled):
        refused = outcome(client.put_object, Bucket=BUCKET, Key="written/unsigned", Body=BODY)
        assert refused[2]["Error"]["Code"] == "AccessDenied"
        assert outcome(client.get_object, Bucket=BUCKET, Key="small")[2]["Error"]["Code"] == "AccessDenied"
        assert (client.verbs3.writes.fast, client.verbs3.fast) == (0, 0)


def test_many_threads_write_their_own(plain, writing):
    def write(thread):
        for turn in range(8):
            writing.put_object(Bucket=BUCKET, Key=f"written/of-{thread}-{turn}", Body=pattern(1_000_000, thread * 8 + turn))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for thread in range(6):
        for turn in range(8):
            got = plain.get_object(Bucket=BUCKET, Key=f"written/of-{thread}-{turn}")["Body"].read()
            assert got == pattern(1_000_000, thread * 8 + turn)
    assert writing.verbs3.writes.slow + writing.verbs3.writes.fast == 48


def test_a_forked_child_writes_by_a_connection_of_its_own(plain, writing):
    writing.put_object(Bucket=BUCKET, Key="written/parent", Body=BODY)

    def child():
        writing.put_object(Bucket=BUCKET, Key="written/child", Body=BODY)
        return writing.verbs3.writes.slow

    assert in_child(child) == 0
    writing.put_object(Bucket=BUCKET, Key="written/parent", Body=b"again")
    assert plain.get_object(Bucket=BUCKET, Key="written/child")["Body"].read() == BODY
    assert plain.get_object(Bucket=BUCKET, Key="written/parent")["Body"].read() == b"again"


def test_a_reader_writes_what_it_then_reads(reader):
    etag = reader.write(BUCKET, "written/by-reader", pattern(100_000), content_type="a/b")
    assert bytes(reader.read(BUCKET, "written/by-reader", if_match=etag)) == pattern(100_000)
    assert reader.head(BUCKET, "written/by-reader")["content-type"] == "a/b"
    with pytest.raises(verbs3.S3Error) as refused:
        reader.write(BUCKET, "written/by-reader", b"other", if_none_match=True)
    assert refused.value.status == 412
    with pytest.raises(verbs3.MemoryFull):
        reader.write(BUCKET, "written/long", bytes(200 << 20))
    assert bytes(reader.read(BUCKET, "written/by-reader")) == pattern(100_000)


# Writes bodies of one byte each, of another length each time, until it is killed.
WRITER = """
import itertools, sys, verbs3
reader = verbs3.connect(sys.argv[1], access_key=sys.argv[2], secret_key=sys.argv[3], memory="16MiB")
print("writing", flush=True)
for turn in itertools.count():
    reader.write("datasets", "written/killed", bytes([turn % 251]) * (1_000_000 + turn % 251))
"""


def test_killed_writers_leave_whole_objects_and_nothing_else(gateway, plain):
    gc.collect()
    held = ("verbs3_lending_clients", "verbs3_lending_memory_bytes")
    before = {name: gateway.metric(name) for name in held}
    plain.put_object(Bucket=BUCKET, Key="written/killed", Body=bytes(1_000_000))
    # By hand a thousand of them: KILLS=1000, and --timeout 900.
    for _ in range(int(os.environ.get("KILLS", "10"))):
        # At any moment of its writes.
        kill_in_work(WRITER, gateway, b"writing\n", within=0.05)
        until(lambda: gateway.metric("verbs3_lending_reads_in_flight") == 0)
        found = plain.get_object(Bucket=BUCKET, Key="written/killed")["Body"].read()
        assert found == bytes([found[0]]) * (1_000_000 + found[0])
        # What comes after the kill stays: no part of the killed write comes later.
        plain.put_object(Bucket=BUCKET, Key="written/killed", Body=bytes(1_000_000))
        assert plain.get_object(Bucket=BUCKET, Key="written/killed")["Body"].read() == bytes(1_000_000)
    for name in held:
        until(lambda name=name: gateway.metric(name) <= before[name])
    assert gateway.metric("verbs3_gateway_requests_in_flight ") == 0
    assert gateway.metric("verbs3_gateway_body_memory_bytes ") == 0
