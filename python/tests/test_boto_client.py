"""boto3's client with and without lent memory: the same dictionaries, the same exceptions, case by case."""

import io
import warnings

import botocore.exceptions
import pytest
import verbs3
from conftest import BUCKET, OTHER_KEY, OTHER_SECRET, boto_arguments

# They name the request, the moment, and how the bytes came: a lease of the object begins and ends between two reads.
OWN = {"date", "x-amz-request-id", "x-amz-id-2", "connection", "x-verbs3-cache", "x-verbs3-transport"}


def comparable(response):
    """A response without what no two responses have in common; its body read."""
    shown = dict(response)
    if "Body" in shown:
        shown["Body"] = shown["Body"].read()
    about = dict(shown["ResponseMetadata"])
    about.pop("RequestId", None)
    about.pop("HostId", None)
    about["HTTPHeaders"] = {name: value for name, value in about["HTTPHeaders"].items() if name not in OWN}
    shown["ResponseMetadata"] = about
    return shown


def outcome(call, **arguments):
    try:
        return comparable(call(**arguments))
    except botocore.exceptions.ClientError as error:
        return type(error).__name__, str(error), comparable(error.response)


CASES = [
    {"Key": "small"},
    {"Key": "empty"},
    {"Key": "large"},
    {"Key": "open/a b/\u00e9?&+.txt"},
    {"Key": "large", "Range": "bytes=100-199"},
    {"Key": "large", "Range": "bytes=-7"},
    {"Key": "large", "Range": "bytes=3000000-"},
    {"Key": "large", "Range": "bytes=3000001-"},
    {"Key": "small", "Range": "nonsense"},
    {"Key": "small", "IfMatch": '"another"'},
    {"Key": "small", "IfNoneMatch": "*"},
    {"Key": "small", "ChecksumMode": "ENABLED"},
    {"Key": "missing"},
    {"Key": "small", "Bucket": "no-such-bucket"},
    # They go over HTTP in either client.
    {"Key": "small", "VersionId": "null"},
    {"Key": "small", "PartNumber": 1},
    {"Key": "small", "ExpectedBucketOwner": "111122223333"},
]


@pytest.mark.parametrize("operation", ["get_object", "head_object"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(f"{name}={value}" for name, value in case.items())[:60])
def test_responses_are_those_of_boto3(plain, fast, objects, operation, case):
    arguments = {"Bucket": BUCKET, **case}
    # The first read of either kind may be a miss.
    outcome(getattr(plain, operation), **arguments)
    outcome(getattr(fast, operation), **arguments)
    assert outcome(getattr(fast, operation), **arguments) == outcome(getattr(plain, operation), **arguments)


def test_conditions_on_the_object_at_hand(plain, fast, objects):
    etag = plain.head_object(Bucket=BUCKET, Key="small")["ETag"]
    for condition in ({"IfMatch": etag}, {"IfNoneMatch": etag}):
        arguments = {"Bucket": BUCKET, "Key": "small", **condition}
        assert outcome(fast.get_object, **arguments) == outcome(plain.get_object, **arguments)


def test_reads_go_by_lent_memory(fast, objects, gateway):
    before, landed = fast.verbs3.fast, gateway.metric("verbs3_lending_bytes_landed_total")
    assert fast.get_object(Bucket=BUCKET, Key="large")["Body"].read() == objects["large"]
    assert fast.verbs3.fast == before + 1
    assert gateway.metric("verbs3_lending_bytes_landed_total") == landed + len(objects["large"])


def test_the_transfer_manager_goes_the_same_way(fast, objects):
    before = fast.verbs3.fast
    target = io.BytesIO()
    fast.download_fileobj(BUCKET, "large", target)
    assert target.getvalue() == objects["large"]
    assert fast.verbs3.fast > before


def test_writes_are_boto3s_own_and_seen_at_once(fast, plain, objects):
    for at in range(20):
        body = bytes([at]) * 1000
        fast.put_object(Bucket=BUCKET, Key="changing", Body=body)
        assert fast.get_object(Bucket=BUCKET, Key="changing")["Body"].read() == body
    fast.delete_object(Bucket=BUCKET, Key="changing")
    with pytest.raises(fast.exceptions.NoSuchKey):
        fast.get_object(Bucket=BUCKET, Key="changing")


def read_into(body):
    target = bytearray(100)
    return [body.readinto(target), bytes(target), body.read()]


def test_bodies_read_as_those_of_boto3(fast, plain, objects):
    for key in ("small", "odd"):
        for read in (
            lambda body: [body.read(10), body.read(0), body.read()],
            lambda body: list(body.iter_chunks(1000)),
            lambda body: list(body),
            read_into,
            lambda body: [body.tell(), body.read(5), body.tell()],
        ):
            assert read(fast.get_object(Bucket=BUCKET, Key=key)["Body"]) == read(plain.get_object(Bucket=BUCKET, Key=key)["Body"])


def test_what_may_not_be_read_is_denied_as_over_http(gateway, objects):
    import boto3

    arguments = boto_arguments(gateway, OTHER_KEY, OTHER_SECRET)
    fast, plain = verbs3.client("s3", socket=gateway.socket, **arguments), boto3.client("s3", **arguments)
    case = {"Bucket": BUCKET, "Key": "small"}
    assert outcome(fast.get_object, **case) == outcome(plain.get_object, **case)
    assert outcome(fast.head_object, **case) == outcome(plain.head_object, **case)
    assert fast.verbs3.fast == 2


def test_memory_that_is_full_sends_reads_over_http(gateway, objects):
    fast = verbs3.client("s3", socket=gateway.socket, memory="4MiB", **boto_arguments(gateway))
    held = [fast.get_object(Bucket=BUCKET, Key="large")["Body"] for _ in range(4)]
    assert fast.verbs3.slow > 0
    assert all(body.read() == objects["large"] for body in held)
    assert fast.get_object(Bucket=BUCKET, Key="large")["Body"].read() == objects["large"]


def test_without_a_socket_it_is_plain_boto3_and_says_so_once(gateway, objects):
    path = "/nowhere/gateway.sock"
    with pytest.warns(UserWarning, match="over HTTP"):
        plain = verbs3.client("s3", socket=path, **boto_arguments(gateway))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verbs3.client("s3", socket=path, **boto_arguments(gateway))
    assert plain.get_object(Bucket=BUCKET, Key="small")["Body"].read() == objects["small"]


def test_a_client_that_is_made_before_the_gateway_becomes_fast(gateway, objects, monkeypatch):
    from verbs3 import _boto_client

    gateway.stop()
    try:
        _boto_client._noticed.clear()
        with pytest.warns(UserWarning, match="over HTTP"):
            early = verbs3.client("s3", socket=gateway.socket, **boto_arguments(gateway))
        with pytest.raises(verbs3.LendingError):
            early.verbs3.reader.read(BUCKET, "small")
    finally:
        gateway.start()
    read = lambda: early.get_object(Bucket=BUCKET, Key="small")["Body"].read()  # noqa: E731 # asked again
    assert read() == objects["small"] and early.verbs3.fast == 0, "it looks again, but not at once"
    monkeypatch.setattr(early.verbs3._connection, "_retry_at", 0.0)
    assert read() == objects["small"] and early.verbs3.fast == 1
    assert bytes(early.verbs3.reader.read(BUCKET, "small")) == objects["small"]
