"""Objects: what was put comes back, byte for byte, through the reader; HEAD says what GET says."""

import pytest
from data import MIB, etag, made

SIZES = [0, 1, 100, 4095, 4096, 4097, 65536, 262143, 262144, 262145, MIB, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB + 7]


@pytest.mark.parametrize("size", SIZES)
def test_put_then_get_returns_the_same_bytes(s3, s3r, bucket, expect, check, size):
    data = made(size)
    put = expect(s3.put_object(Bucket=bucket, Key="object", Body=data), 200)
    got = expect(s3r.get_object(Bucket=bucket, Key="object"), 200)
    assert got.body == data
    assert got["ContentLength"] == size
    check("etag of put", put["ETag"], etag(data))
    check("etag of get", got["ETag"], etag(data))


def test_zero_bytes_have_the_md5_of_nothing(s3, s3r, bucket, expect, check):
    expect(s3.put_object(Bucket=bucket, Key="empty", Body=b""), 200)
    head = expect(s3r.head_object(Bucket=bucket, Key="empty"), 200)
    assert head["ContentLength"] == 0
    check("etag", head["ETag"], '"d41d8cd98f00b204e9800998ecf8427e"')


def test_head_has_the_headers_of_get(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=made(5000), ContentType="text/x-suite", CacheControl="no-cache",
                  Metadata={"colour": "blue"})
    # boto3 asks for checksums on GET of its own accord, on HEAD only if told to.
    head = expect(s3r.head_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED"), 200)
    got = expect(s3r.get_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED"), 200)
    volatile = {"date", "x-amz-request-id", "x-amz-id-2", "connection", "keep-alive", "server", "x-verbs3-cache", "x-verbs3-transport"}
    assert comparable(head, volatile) == comparable(got, volatile)


def comparable(answer, volatile):
    return sorted((name.lower(), value) for name, value in answer.headers if name.lower() not in volatile)


def test_get_repeats_itself(s3, s3r, bucket, expect):
    data = made(700_000)
    s3.put_object(Bucket=bucket, Key="object", Body=data)
    answers = [expect(s3r.get_object(Bucket=bucket, Key="object"), 200) for _ in range(4)]
    assert all(answer.body == data for answer in answers)
    assert len({(answer["ETag"], answer["LastModified"]) for answer in answers}) == 1


def test_get_of_a_missing_key_is_no_such_key(s3r, bucket, expect):
    expect(s3r.get_object(Bucket=bucket, Key="missing"), 404, "NoSuchKey")


def test_head_of_a_missing_key_is_404_without_a_body(rawr, bucket, expect):
    answer = expect(rawr.call("HEAD", bucket, "missing"), 404)
    assert answer.body == b""


def test_get_from_a_missing_bucket_is_no_such_bucket(s3r, expect):
    expect(s3r.get_object(Bucket="suite-no-such-bucket", Key="key"), 404, "NoSuchBucket")


def test_put_into_a_missing_bucket_is_no_such_bucket(s3, expect):
    expect(s3.put_object(Bucket="suite-no-such-bucket", Key="key", Body=b"x"), 404, "NoSuchBucket")


def test_head_of_a_missing_bucket_is_404(s3r, expect):
    expect(s3r.head_bucket(Bucket="suite-no-such-bucket"), 404)


def test_head_of_a_bucket_is_200(s3r, bucket, expect):
    expect(s3r.head_bucket(Bucket=bucket), 200)


@pytest.mark.parametrize("round_size", [10, 300_000, 5 * MIB])
def test_overwrite_is_seen_by_the_next_read(s3, s3r, bucket, expect, round_size):
    for number in range(8):
        data = made(round_size + number, f"round {number}")
        expect(s3.put_object(Bucket=bucket, Key="object", Body=data), 200)
        assert s3r.get_object(Bucket=bucket, Key="object").body == data
        assert s3r.head_object(Bucket=bucket, Key="object")["ETag"] == etag(data)


def test_overwrite_of_the_same_length_is_seen(s3, s3r, bucket):
    for number in range(12):
        data = made(1000, f"round {number}")
        s3.put_object(Bucket=bucket, Key="object", Body=data)
        assert s3r.get_object(Bucket=bucket, Key="object").body == data


def test_a_shorter_overwrite_leaves_no_tail(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=made(9 * MIB))
    assert len(s3r.get_object(Bucket=bucket, Key="object").body) == 9 * MIB
    s3.put_object(Bucket=bucket, Key="object", Body=b"short")
    assert s3r.get_object(Bucket=bucket, Key="object").body == b"short"
    expect(s3r.get_object(Bucket=bucket, Key="object", Range="bytes=5-10"), 416, "InvalidRange")


def test_absence_ends_with_the_first_write(s3, s3r, bucket, expect):
    for _ in range(3):
        expect(s3r.get_object(Bucket=bucket, Key="late"), 404, "NoSuchKey")
    s3.put_object(Bucket=bucket, Key="late", Body=b"here")
    assert s3r.get_object(Bucket=bucket, Key="late").body == b"here"


def test_reader_and_writer_answer_alike(s3, s3r, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=made(12345), Metadata={"a": "1"})
    mine, theirs = s3.get_object(Bucket=bucket, Key="object"), s3r.get_object(Bucket=bucket, Key="object")
    assert mine.body == theirs.body
    assert [mine[name] for name in ("ETag", "LastModified", "Metadata")] == [theirs[name] for name in ("ETag", "LastModified", "Metadata")]


def test_if_read_in_small_pieces_the_body_is_the_same(s3, s3r, bucket):
    data = made(3 * MIB + 11)
    s3.put_object(Bucket=bucket, Key="object", Body=data)
    body = s3r.boto.get_object(Bucket=bucket, Key="object")["Body"]
    assert b"".join(body.iter_chunks(10_007)) == data


def test_a_body_left_unread_does_not_spoil_the_next_answer(s3, s3r, bucket):
    data = made(8 * MIB)
    s3.put_object(Bucket=bucket, Key="object", Body=data)
    for _ in range(5):
        s3r.boto.get_object(Bucket=bucket, Key="object")["Body"].close()
    assert s3r.get_object(Bucket=bucket, Key="object").body == data
