"""Byte ranges: RFC 9110 section 14, as S3 has it (one range; a range that can't be met is 416, a malformed one is ignored)."""

import pytest
from data import MIB, made

SIZE = 9 * MIB + 77
DATA = made(SIZE, "ranges")
PAGE = 256 * 1024
BLOCK = 4 * MIB

# (Range value, first byte, last byte) of an object of SIZE bytes.
INSIDE = [
    ("bytes=0-0", 0, 0),
    ("bytes=0-99", 0, 99),
    ("bytes=100-100", 100, 100),
    ("bytes=1-4095", 1, 4095),
    (f"bytes={PAGE - 1}-{PAGE}", PAGE - 1, PAGE),
    (f"bytes={PAGE}-{2 * PAGE - 1}", PAGE, 2 * PAGE - 1),
    (f"bytes={BLOCK - 1}-{BLOCK}", BLOCK - 1, BLOCK),
    (f"bytes={BLOCK}-{2 * BLOCK - 1}", BLOCK, 2 * BLOCK - 1),
    (f"bytes=5-{SIZE - 5}", 5, SIZE - 5),
    (f"bytes={SIZE - 1}-{SIZE - 1}", SIZE - 1, SIZE - 1),
    (f"bytes={SIZE - 10}-", SIZE - 10, SIZE - 1),
    ("bytes=0-", 0, SIZE - 1),
    ("bytes=-1", SIZE - 1, SIZE - 1),
    ("bytes=-300000", SIZE - 300000, SIZE - 1),
    (f"bytes=-{SIZE}", 0, SIZE - 1),
    (f"bytes=-{SIZE + 5}", 0, SIZE - 1),
    (f"bytes=0-{SIZE}", 0, SIZE - 1),
    (f"bytes={SIZE - 3}-{SIZE + 1000}", SIZE - 3, SIZE - 1),
    ("bytes=10-99999999999999", 10, SIZE - 1),
]


@pytest.fixture
def ranged(s3, bucket):
    s3.boto.put_object(Bucket=bucket, Key="object", Body=DATA)
    return bucket


def test_each_range_inside_is_206_with_its_bytes(s3r, ranged, expect, check):
    for value, first, last in INSIDE:
        got = expect(s3r.get_object(Bucket=ranged, Key="object", Range=value), 206)
        assert got.body == DATA[first:last + 1], value
        check(f"content-range of {value}", got["ContentRange"], f"bytes {first}-{last}/{SIZE}")


@pytest.mark.parametrize("value,first,last", INSIDE, ids=[value for value, _, _ in INSIDE])
def test_a_cold_range_is_206(s3, s3r, bucket, expect, check, value, first, last):
    """The first thing that is read of the object: nothing of it is known or cached."""
    s3.boto.put_object(Bucket=bucket, Key="object", Body=DATA)
    got = expect(s3r.get_object(Bucket=bucket, Key="object", Range=value), 206)
    assert got.body == DATA[first:last + 1]
    assert got["ContentLength"] == last - first + 1


@pytest.mark.parametrize("value", [f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 1}", "bytes=99999999999999-", "bytes=-0"])
def test_a_range_past_the_end_is_416(s3r, ranged, expect, value):
    expect(s3r.get_object(Bucket=ranged, Key="object", Range=value), 416, "InvalidRange")


@pytest.mark.parametrize("value", ["bytes=5-2", "bytes=a-b", "bytes=", "bytes=-", "octets=0-5", "bytes 0-5", "0-5", "bytes=--5"])
def test_a_malformed_range_is_ignored(s3r, ranged, expect, value):
    got = expect(s3r.get_object(Bucket=ranged, Key="object", Range=value), 200)
    assert got.status != 200 or got.body == DATA


@pytest.mark.parametrize("value", ["bytes=0-1,5-6", "bytes=0-0, -1", "bytes=10-20,0-5,7-8"])
def test_several_ranges_are_ignored(s3r, ranged, expect, value):
    """S3 does not answer several ranges at once (GetObject, "Range"): the whole object comes."""
    got = expect(s3r.get_object(Bucket=ranged, Key="object", Range=value), 200)
    assert got.status != 200 or got.body == DATA


def test_several_ranges_are_ignored_by_head_and_second_reader(s3r, rawr, ranged, expect):
    for _ in range(2):
        expect(s3r.head_object(Bucket=ranged, Key="object", Range="bytes=0-1,5-6"), 200)
        got = expect(rawr.call("GET", ranged, "object", headers={"range": "bytes=0-1, 5-6"}), 200)
        assert got.status != 200 or got.body == DATA


def test_any_range_of_an_empty_object_is_416(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    for value in ("bytes=0-", "bytes=0-0", "bytes=-1"):
        expect(s3r.get_object(Bucket=bucket, Key="empty", Range=value), 416, "InvalidRange")


def test_head_with_a_range_is_206_with_the_part_length(s3r, ranged, expect, check):
    head = expect(s3r.head_object(Bucket=ranged, Key="object", Range="bytes=10-19"), 206)
    check("length", head["ContentLength"], 10)
    check("content-range", head.header("content-range"), f"bytes 10-19/{SIZE}")


def test_head_with_a_range_past_the_end_is_416(s3r, ranged, expect):
    expect(s3r.head_object(Bucket=ranged, Key="object", Range=f"bytes={SIZE}-"), 416)


def test_a_range_with_a_matching_if_range_is_206(s3r, ranged, rawr, expect):
    etag = s3r.head_object(Bucket=ranged, Key="object")["ETag"]
    got = expect(rawr.call("GET", ranged, "object", headers={"range": "bytes=5-9", "if-range": etag}), 206)
    assert got.body == DATA[5:10]


@pytest.mark.parametrize("range_value", ["bytes=5-9", f"bytes={SIZE}-"])
@pytest.mark.parametrize("validator", ["other", "weak", "old"])
def test_a_range_of_another_version_is_the_whole_object(s3r, ranged, rawr, expect, range_value, validator):
    """RFC 9110 section 13.1.5. The pages of the range come first where nothing is cached, and are not what is wanted."""
    etag = s3r.head_object(Bucket=ranged, Key="object")["ETag"]
    value = {"other": '"0123456789abcdef0123456789abcdef"', "weak": f"W/{etag}", "old": "Sun, 06 Nov 1994 08:49:37 GMT"}[validator]
    got = expect(rawr.call("GET", ranged, "object", headers={"range": range_value, "if-range": value}), 200)
    assert got.status != 200 or got.body == DATA


def test_a_range_with_the_objects_date_as_if_range_is_206(s3r, ranged, rawr, expect):
    date = s3r.head_object(Bucket=ranged, Key="object").header("last-modified")
    got = expect(rawr.call("GET", ranged, "object", headers={"range": "bytes=-5", "if-range": date}), 206)
    assert got.body == DATA[-5:]


def test_a_download_resumes_its_own_version_or_begins_again(s3, s3r, ranged, rawr, expect):
    etag = s3r.head_object(Bucket=ranged, Key="object")["ETag"]
    rest = {"range": f"bytes={BLOCK}-", "if-range": etag}
    assert expect(rawr.call("GET", ranged, "object", headers=rest), 206).body == DATA[BLOCK:]
    data = made(SIZE, "other")
    s3.boto.put_object(Bucket=ranged, Key="object", Body=data)
    got = expect(rawr.call("GET", ranged, "object", headers=rest), 200)
    assert got.status != 200 or got.body == data


def test_a_condition_comes_before_if_range(s3r, ranged, rawr, expect):
    other = '"0123456789abcdef0123456789abcdef"'
    head = {"range": "bytes=5-9", "if-range": other}
    expect(rawr.call("GET", ranged, "object", headers=head | {"if-match": other}), 412, "PreconditionFailed")


def test_ranges_after_an_overwrite_are_of_the_new_bytes(s3, s3r, ranged):
    before = s3r.get_object(Bucket=ranged, Key="object", Range=f"bytes={BLOCK}-{BLOCK + 99}").body
    assert before == DATA[BLOCK:BLOCK + 100]
    data = made(SIZE, "other")
    s3.boto.put_object(Bucket=ranged, Key="object", Body=data)
    assert s3r.get_object(Bucket=ranged, Key="object", Range=f"bytes={BLOCK}-{BLOCK + 99}").body == data[BLOCK:BLOCK + 100]


def test_a_patchwork_of_ranges_is_the_object(s3r, ranged):
    step = 777_777
    pieces = [s3r.get_object(Bucket=ranged, Key="object", Range=f"bytes={at}-{at + step - 1}").body for at in range(0, SIZE, step)]
    assert b"".join(pieces) == DATA


def test_a_range_of_a_missing_key_is_no_such_key(s3r, bucket, expect):
    expect(s3r.get_object(Bucket=bucket, Key="missing", Range="bytes=0-1"), 404, "NoSuchKey")


def test_accept_ranges_is_told(s3r, ranged, check):
    check("accept-ranges", s3r.head_object(Bucket=ranged, Key="object").header("accept-ranges"), "bytes")
