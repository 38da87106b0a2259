"""Integrity of uploads: the five checksums, as header and as trailer, Content-MD5 and the payload hash. Wrong → nothing stored."""

import base64
import hashlib

import pytest
from chunked import SIGNED_TRAILER, UNSIGNED_TRAILER, Upload
from data import ALGORITHMS, b64, checksum, made

DATA = made(150_000, "checksums")
TRAILER_FORMS = {"signed": SIGNED_TRAILER, "unsigned": UNSIGNED_TRAILER}


def absent(s3r, bucket, check, answer):
    """Nothing was stored. (The label carries the step, so that a deviation names it.)"""
    check("stored", s3r.head_object(Bucket=bucket, Key="object").status, 404)


def bent(value: str) -> str:
    raw = bytearray(base64.b64decode(value))
    raw[0] ^= 1
    return b64(bytes(raw))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_right_checksum_is_taken(raw, s3r, bucket, expect, algorithm):
    name, value = checksum(algorithm, DATA)
    expect(raw.call("PUT", bucket, "object", headers={name: value}, body=DATA), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_checksum_stores_nothing(raw, s3r, bucket, expect, check, algorithm):
    name, value = checksum(algorithm, DATA)
    answer = expect(raw.call("PUT", bucket, "object", headers={name: bent(value)}, body=DATA), {"400 BadDigest", "400 InvalidRequest"})
    absent(s3r, bucket, check, answer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_checksum_that_is_none_is_refused(raw, s3r, bucket, expect, check, algorithm):
    name, _ = checksum(algorithm, DATA)
    answer = expect(raw.call("PUT", bucket, "object", headers={name: "AAA"}, body=DATA), {"400 InvalidRequest", "400 BadDigest", "400 InvalidArgument"})
    absent(s3r, bucket, check, answer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_checksum_is_told_when_asked_for(s3, s3r, bucket, expect, check, algorithm):
    expect(s3.put_object(Bucket=bucket, Key="object", Body=DATA, ChecksumAlgorithm=algorithm), 200)
    name, value = checksum(algorithm, DATA)
    check("head", s3r.head_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED").header(name), value)
    check("get", s3r.get_object(Bucket=bucket, Key="object", ChecksumMode="ENABLED").header(name), value)
    check("unasked", s3r.head_object(Bucket=bucket, Key="object").header(name), None)


@pytest.mark.parametrize("form", TRAILER_FORMS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_right_trailing_checksum_is_taken(raw, s3r, bucket, expect, algorithm, form):
    upload = Upload(DATA, TRAILER_FORMS[form], [checksum(algorithm, DATA)])
    expect(raw.upload(bucket, "object", upload), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


@pytest.mark.parametrize("form", TRAILER_FORMS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_trailing_checksum_stores_nothing(raw, s3r, bucket, expect, check, algorithm, form):
    name, value = checksum(algorithm, DATA)
    upload = Upload(DATA, TRAILER_FORMS[form], [(name, bent(value))])
    answer = expect(raw.upload(bucket, "object", upload), {"400 BadDigest", "400 InvalidRequest"})
    absent(s3r, bucket, check, answer)


@pytest.mark.parametrize("form", TRAILER_FORMS)
def test_a_wrong_trailing_checksum_leaves_the_old_object(raw, s3, s3r, bucket, check, form):
    s3.put_object(Bucket=bucket, Key="object", Body=b"old")
    name, value = checksum("CRC32", DATA)
    raw.upload(bucket, "object", Upload(DATA, TRAILER_FORMS[form], [(name, bent(value))]))
    check("old bytes", s3r.get_object(Bucket=bucket, Key="object").body == b"old", True)


def test_a_right_content_md5_is_taken(s3, s3r, bucket, expect):
    expect(s3.put_object(Bucket=bucket, Key="object", Body=DATA, ContentMD5=b64(hashlib.md5(DATA).digest())), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


def test_a_wrong_content_md5_stores_nothing(s3, s3r, bucket, expect, check):
    answer = expect(s3.put_object(Bucket=bucket, Key="object", Body=DATA, ContentMD5=b64(hashlib.md5(b"").digest())), 400, "BadDigest")
    absent(s3r, bucket, check, answer)


@pytest.mark.parametrize("value", ["AAAA", "no base64!", b64(b"x" * 15), b64(b"x" * 17)])
def test_a_content_md5_that_is_none_is_an_invalid_digest(raw, s3r, bucket, expect, check, value):
    answer = expect(raw.call("PUT", bucket, "object", headers={"content-md5": value}, body=DATA), 400, "InvalidDigest")
    absent(s3r, bucket, check, answer)


def test_a_wrong_payload_hash_stores_nothing(raw, s3r, bucket, expect, check):
    answer = expect(raw.call("PUT", bucket, "object", body=DATA, payload=hashlib.sha256(b"other").hexdigest()), 400, "XAmzContentSHA256Mismatch")
    absent(s3r, bucket, check, answer)


def test_a_payload_hash_that_is_none_is_refused(raw, s3r, bucket, refused, check):
    answer = refused(raw.call("PUT", bucket, "object", body=DATA, payload="abcdef"))
    absent(s3r, bucket, check, answer)


def test_an_unsigned_payload_is_taken(raw, s3r, bucket, expect):
    expect(raw.call("PUT", bucket, "object", body=DATA, payload="UNSIGNED-PAYLOAD"), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parts_with_checksums_become_an_object(s3, s3r, bucket, expect, algorithm):
    upload_id = s3.create_multipart_upload(Bucket=bucket, Key="object", ChecksumAlgorithm=algorithm)["UploadId"]
    part = expect(s3.upload_part(Bucket=bucket, Key="object", UploadId=upload_id, PartNumber=1, Body=DATA, ChecksumAlgorithm=algorithm), 200)
    parts = [{"PartNumber": 1, "ETag": part["ETag"]} | {name: value for name, value in part.parsed.items() if name == f"Checksum{algorithm}"}]
    expect(s3.complete_multipart_upload(Bucket=bucket, Key="object", UploadId=upload_id, MultipartUpload={"Parts": parts}), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_checksum_refuses_the_part(raw, s3, s3r, bucket, expect, check, algorithm):
    upload_id = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    name, value = checksum(algorithm, DATA)
    query = [("partNumber", "1"), ("uploadId", upload_id)]
    expect(raw.call("PUT", bucket, "object", query=query, headers={name: bent(value)}, body=DATA), {"400 BadDigest", "400 InvalidRequest"})
    check("parts", len(s3r.list_parts(Bucket=bucket, Key="object", UploadId=upload_id).get("Parts", [])), 0)


def test_object_attributes(s3, s3r, bucket, expect, check):
    s3.put_object(Bucket=bucket, Key="object", Body=DATA)
    answer = expect(s3r.get_object_attributes(Bucket=bucket, Key="object", ObjectAttributes=["ETag", "ObjectSize"]), 200)
    check("size", answer.get("ObjectSize"), len(DATA))
