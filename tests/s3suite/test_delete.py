"""Deletes, single and in batches, and what readers see afterwards; deletes of buckets."""

import pytest
from data import b64, made, md5


def test_a_deleted_object_is_gone_for_every_kind_of_read(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=made(5000))
    assert s3r.get_object(Bucket=bucket, Key="object").status == 200
    expect(s3.delete_object(Bucket=bucket, Key="object"), 204)
    expect(s3r.get_object(Bucket=bucket, Key="object"), 404, "NoSuchKey")
    expect(s3r.head_object(Bucket=bucket, Key="object"), 404)
    expect(s3r.get_object(Bucket=bucket, Key="object", Range="bytes=0-9"), 404, "NoSuchKey")
    assert s3r.list_objects_v2(Bucket=bucket).get("Contents", []) == []


def test_deleting_a_missing_key_is_204(s3, bucket, expect):
    expect(s3.delete_object(Bucket=bucket, Key="missing"), 204)


def test_deleting_from_a_missing_bucket_is_no_such_bucket(s3, expect):
    expect(s3.delete_object(Bucket="suite-no-such-bucket", Key="key"), 404, "NoSuchBucket")


def test_put_and_delete_in_turn_are_always_seen(s3, s3r, bucket):
    for number in range(8):
        data = made(20_000, f"turn {number}")
        s3.put_object(Bucket=bucket, Key="object", Body=data)
        assert s3r.get_object(Bucket=bucket, Key="object").body == data
        s3.delete_object(Bucket=bucket, Key="object")
        assert s3r.get_object(Bucket=bucket, Key="object").status == 404


def test_deleting_one_leaves_its_neighbours(s3, s3r, bucket):
    for key in ("x", "x/y", "x/y/z", "xy"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    s3.delete_object(Bucket=bucket, Key="x/y")
    assert [entry["Key"] for entry in s3r.list_objects_v2(Bucket=bucket)["Contents"]] == ["x", "x/y/z", "xy"]
    assert s3r.get_object(Bucket=bucket, Key="x/y/z").body == b"x/y/z"


def test_a_batch_deletes_what_is_there_and_what_is_not(s3, s3r, bucket, expect):
    for key in ("one", "two", "three"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
        assert s3r.get_object(Bucket=bucket, Key=key).status == 200
    answer = expect(s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "one"}, {"Key": "missing"}, {"Key": "two"}]}), 200)
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == ["missing", "one", "two"]
    assert [s3r.get_object(Bucket=bucket, Key=key).status for key in ("one", "two", "three")] == [404, 404, 200]


def test_a_quiet_batch_tells_nothing(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="one", Body=b"x")
    answer = expect(s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "one"}], "Quiet": True}), 200)
    assert answer.get("Deleted", []) == []
    expect(s3r.head_object(Bucket=bucket, Key="one"), 404)


def test_a_batch_with_odd_keys(s3, s3r, bucket, expect):
    keys = ["a&b", "<x>", "ä ö", "a+b", "per%20cent", "quote\"'", "dir/"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    answer = expect(s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]}), 200)
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == sorted(keys)
    assert s3r.list_objects_v2(Bucket=bucket).get("Contents", []) == []


def test_a_batch_of_more_than_a_thousand_is_refused(s3, bucket, expect):
    expect(s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"{number}"} for number in range(1001)]}), 400, "MalformedXML")


@pytest.mark.parametrize("body", [b"not xml", b"<Delete><Object></Delete>", b"<Delete></Delete>"], ids=["text", "cut", "empty"])
def test_a_malformed_batch_is_refused(raw, s3, s3r, bucket, expect, body):
    s3.put_object(Bucket=bucket, Key="stays", Body=b"x")
    digest = b64(bytes.fromhex(md5(body)))
    expect(raw.call("POST", bucket, query=[("delete", "")], headers={"content-md5": digest}, body=body), 400, "MalformedXML")
    assert s3r.head_object(Bucket=bucket, Key="stays").status == 200


def test_a_batch_with_a_wrong_md5_deletes_nothing(raw, s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="stays", Body=b"x")
    body = b"<Delete><Object><Key>stays</Key></Object></Delete>"
    expect(raw.call("POST", bucket, query=[("delete", "")], headers={"content-md5": "1B2M2Y8AsgTpgAmY7PhCfg=="}, body=body), 400, "BadDigest")
    expect(s3r.head_object(Bucket=bucket, Key="stays"), 200)


def test_a_bucket_with_objects_is_not_deleted(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    expect(s3.delete_bucket(Bucket=bucket), 409, "BucketNotEmpty")
    assert s3r.get_object(Bucket=bucket, Key="object").body == b"x"


def test_an_empty_bucket_is_deleted(s3, s3r, bucket, expect):
    expect(s3.delete_bucket(Bucket=bucket), 204)
    expect(s3r.head_bucket(Bucket=bucket), 404)
    expect(s3r.list_objects_v2(Bucket=bucket), 404, "NoSuchBucket")
    expect(s3.delete_bucket(Bucket=bucket), 404, "NoSuchBucket")


def test_a_bucket_made_anew_does_not_show_old_objects(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=b"old")
    assert s3r.get_object(Bucket=bucket, Key="object").body == b"old"
    s3.delete_object(Bucket=bucket, Key="object")
    s3.delete_bucket(Bucket=bucket)
    expect(s3.create_bucket(Bucket=bucket), 200)
    expect(s3r.get_object(Bucket=bucket, Key="object"), 404, "NoSuchKey")
