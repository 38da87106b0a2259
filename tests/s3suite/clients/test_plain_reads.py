"""Reads of the plain form have the same answer as those that carry something more: a gateway may take a shorter way for them."""

import proof
import pytest
from data import made

SIZE = 300_000
DATA = made(SIZE, "plain")
META = {"colour": "blue", "shape": "round"}
# Changes nothing of what S3 answers, and is no header of a plain read.
MORE = {"x-forwarded-for": "192.0.2.1"}
# Differ from answer to answer, or tell which way it went.
OWN = {"date", "x-amz-request-id", "x-amz-id-2", "x-verbs3-cache", "x-verbs3-transport", "connection", "keep-alive"}

KEYS = ["small", "deep/er/object.tar", "empty", "with~all-of_these.0", "missing"]
RANGES = [None, "bytes=0-0", "bytes=5-99", "bytes=-7", "bytes=100000-", "bytes=262143-262144", f"bytes={SIZE}-", "bytes=5-2",
          "bytes=0-1,3-4", "bytes=99999999999999999999-"]


def plain_reads() -> int:
    return int(sum(value for name, _, value in proof.scrape() if name == "verbs3_gateway_plain_reads_total"))


def test_plain_reads_go_the_short_way_and_those_with_more_do_not(raw, filled):
    raw.call("GET", filled, "small")
    before = plain_reads()
    for send in (raw.call, raw.presigned):
        for method in ("GET", "HEAD"):
            assert send(method, filled, "small").status == 200
    after = plain_reads()
    assert after == before + 4
    assert raw.call("GET", filled, "small", headers=MORE).status == 200
    assert plain_reads() == after


@pytest.fixture
def filled(s3, bucket):
    for key in KEYS[:-1]:
        body = b"" if key == "empty" else DATA
        s3.boto.put_object(Bucket=bucket, Key=key, Body=body, Metadata=META, ContentType="text/x-plain", CacheControl="max-age=60",
                           ChecksumAlgorithm="CRC32")
    return bucket


def seen(answer):
    headers = sorted((name.lower(), value) for name, value in answer.headers if name.lower() not in OWN)
    body = answer.body
    if answer.status >= 400:
        # An error document names its request.
        body = answer.code
    return answer.status, headers if answer.status < 400 else None, body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("mode", [None, "ENABLED"], ids=["", "checksums"])
def test_a_plain_read_has_the_answer_of_one_with_more(raw, filled, method, mode):
    asked = {"x-amz-checksum-mode": mode} if mode else {}
    for key in KEYS:
        raw.call("GET", filled, key)
        for wanted in RANGES:
            headers = asked | ({"range": wanted} if wanted else {})
            short = raw.call(method, filled, key, headers=headers)
            long = raw.call(method, filled, key, headers=headers | MORE)
            assert seen(short) == seen(long), f"{method} {key} {wanted}"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_plain_url_has_the_answer_of_one_with_more(raw, filled, method):
    for key in KEYS:
        raw.call("GET", filled, key)
        for wanted in RANGES[:4]:
            headers = {"range": wanted} if wanted else {}
            assert seen(raw.presigned(method, filled, key, headers=headers)) == \
                seen(raw.presigned(method, filled, key, headers=headers | MORE)), f"{method} {key} {wanted}"


@pytest.mark.parametrize("more", [{}, MORE], ids=["plain", "more"])
@pytest.mark.parametrize("key", ["small", "missing"])
def test_a_plain_read_with_a_wrong_signature_is_refused(raw, filled, expect, key, more):
    path = f"/{filled}/{key}"
    signed = raw.signer().authorize("GET", path, [], {"host": raw.to.authority} | more, "UNSIGNED-PAYLOAD")
    rest, last = signed["Authorization"][:-1], signed["Authorization"][-1]
    wrong = signed | {"Authorization": rest + ("0" if last != "0" else "1")}
    expect(raw.send("GET", path, wrong), 403, "SignatureDoesNotMatch")
