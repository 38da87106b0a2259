"""Listings, both versions of the operation: order, prefix, delimiter, pages, encoding."""

from concurrent.futures import ThreadPoolExecutor

import pytest

KEYS = ["a", "a/1", "a/2", "a/b/1", "a/b/2", "a0", "b", "c/", "c/1", "d e", "z/x/y"]


@pytest.fixture
def filled(s3, bucket):
    for key in KEYS:
        s3.boto.put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


def keys(answer) -> list[str]:
    return [entry["Key"] for entry in answer.get("Contents", [])]


def prefixes(answer) -> list[str]:
    return [entry["Prefix"] for entry in answer.get("CommonPrefixes", [])]


def both(client, **arguments):
    return client.list_objects(**arguments), client.list_objects_v2(**arguments)


def test_everything_in_order(s3r, filled, expect):
    for answer in both(s3r, Bucket=filled):
        expect(answer, 200)
        assert keys(answer) == KEYS
        assert answer["IsTruncated"] is False


def test_an_empty_bucket_lists_nothing(s3r, bucket, expect, check):
    for answer in both(s3r, Bucket=bucket):
        expect(answer, 200)
        assert keys(answer) == []
    check("key count", s3r.list_objects_v2(Bucket=bucket)["KeyCount"], 0)


def test_entries_tell_size_and_etag(s3r, filled):
    for answer in both(s3r, Bucket=filled, Prefix="a/1"):
        entry = answer["Contents"][0]
        assert entry["Size"] == 3
        assert entry["ETag"].strip('"') == "a29cc0e52f2a81ec7c1b3c5eb1ef9f2d" or len(entry["ETag"].strip('"')) == 32


@pytest.mark.parametrize("prefix", ["a", "a/", "a/b", "a/b/", "c/", "d ", "nothing", "z/x/y"])
def test_prefix(s3r, filled, prefix):
    for answer in both(s3r, Bucket=filled, Prefix=prefix):
        assert keys(answer) == [key for key in KEYS if key.startswith(prefix)]


DELIMITED = {
    "slash": (dict(Delimiter="/"), ["a", "a0", "b", "d e"], ["a/", "c/", "z/"]),
    "slash_under_a": (dict(Delimiter="/", Prefix="a/"), ["a/1", "a/2"], ["a/b/"]),
    "slash_under_a_without_slash": (dict(Delimiter="/", Prefix="a"), ["a", "a0"], ["a/"]),
    "slash_under_c": (dict(Delimiter="/", Prefix="c/"), ["c/", "c/1"], []),
    "another_character": (dict(Delimiter="b"), ["a", "a/1", "a/2", "a0", "c/", "c/1", "d e", "z/x/y"], ["a/b", "b"]),
    "two_characters": (dict(Delimiter="/b"), ["a", "a/1", "a/2", "a0", "b", "c/", "c/1", "d e", "z/x/y"], ["a/b"]),
    "a_space": (dict(Delimiter=" "), ["a", "a/1", "a/2", "a/b/1", "a/b/2", "a0", "b", "c/", "c/1", "z/x/y"], ["d "]),
    "absent_delimiter": (dict(Delimiter="#"), KEYS, []),
}


@pytest.mark.parametrize("name", DELIMITED)
def test_delimiter(s3r, filled, name):
    arguments, wanted, common = DELIMITED[name]
    for answer in both(s3r, Bucket=filled, **arguments):
        assert keys(answer) == wanted
        assert prefixes(answer) == common


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10, 11])
def test_pages_of_version_2_cover_everything_once(s3r, filled, check, size):
    found, arguments = [], {}
    for _ in range(len(KEYS) + 1):
        page = s3r.list_objects_v2(Bucket=filled, MaxKeys=size, **arguments)
        assert len(keys(page)) <= size
        check("max keys", page["MaxKeys"], size)
        found += keys(page)
        if not page["IsTruncated"]:
            break
        arguments = {"ContinuationToken": page["NextContinuationToken"]}
    assert found == KEYS


@pytest.mark.parametrize("size", [1, 3])
def test_pages_with_a_delimiter_tell_each_prefix_once(s3r, filled, size):
    found, common, arguments = [], [], {}
    for _ in range(2 * len(KEYS)):
        page = s3r.list_objects_v2(Bucket=filled, MaxKeys=size, Delimiter="/", **arguments)
        assert len(keys(page)) + len(prefixes(page)) <= size
        found, common = found + keys(page), common + prefixes(page)
        if not page["IsTruncated"]:
            break
        arguments = {"ContinuationToken": page["NextContinuationToken"]}
    assert (found, common) == (["a", "a0", "b", "d e"], ["a/", "c/", "z/"])


def test_pages_of_version_1_go_on_from_the_marker(s3r, filled):
    found, marker = [], ""
    for _ in range(len(KEYS) + 1):
        page = s3r.list_objects(Bucket=filled, MaxKeys=4, Marker=marker)
        found += keys(page)
        if not page["IsTruncated"]:
            break
        marker = page.get("NextMarker") or keys(page)[-1]
    assert found == KEYS


def test_start_after(s3r, filled):
    assert keys(s3r.list_objects_v2(Bucket=filled, StartAfter="a/2")) == KEYS[3:]
    assert keys(s3r.list_objects_v2(Bucket=filled, StartAfter="a/15")) == KEYS[2:]
    assert keys(s3r.list_objects_v2(Bucket=filled, StartAfter="zz")) == []
    assert keys(s3r.list_objects_v2(Bucket=filled, StartAfter="a", Prefix="a/b")) == ["a/b/1", "a/b/2"]


def test_marker_that_is_no_key(s3r, filled):
    assert keys(s3r.list_objects(Bucket=filled, Marker="a/15")) == KEYS[2:]


def test_max_keys_of_zero_lists_nothing_and_is_not_truncated(s3r, filled, check):
    answer = s3r.list_objects_v2(Bucket=filled, MaxKeys=0)
    assert keys(answer) == []
    check("truncated", answer["IsTruncated"], False)


def test_max_keys_above_a_thousand_is_cut(s3r, filled, check):
    check("max keys", s3r.list_objects_v2(Bucket=filled, MaxKeys=5000)["MaxKeys"], 1000)


@pytest.mark.parametrize("value", ["-1", "many"])
def test_a_bad_max_keys_is_an_invalid_argument(rawr, filled, expect, value):
    expect(rawr.call("GET", filled, query=[("list-type", "2"), ("max-keys", value)]), 400, "InvalidArgument")


def test_fetch_owner(s3r, filled, check):
    with_owner = s3r.list_objects_v2(Bucket=filled, FetchOwner=True)["Contents"][0]
    without = s3r.list_objects_v2(Bucket=filled)["Contents"][0]
    check("owner asked for", "Owner" in with_owner, True)
    check("owner not asked for", "Owner" in without, False)


def test_url_encoding_is_on_request_only(s3, rawr, bucket):
    s3.put_object(Bucket=bucket, Key="dir/ä b+c%20&<x>", Body=b"x")
    plain = rawr.call("GET", bucket, query=[("list-type", "2")]).body.decode()
    coded = rawr.call("GET", bucket, query=[("list-type", "2"), ("encoding-type", "url")]).body.decode()
    assert "<Key>dir/ä b+c%20&amp;&lt;x&gt;</Key>" in plain
    assert any(f"<Key>{key}</Key>" in coded for key in (
        "dir/%C3%A4+b%2Bc%2520%26%3Cx%3E", "dir/%C3%A4%20b%2Bc%2520%26%3Cx%3E", "dir%2F%C3%A4%20b%2Bc%2520%26%3Cx%3E"))


def test_a_bad_encoding_type_is_refused(rawr, bucket, expect):
    expect(rawr.call("GET", bucket, query=[("encoding-type", "base64")]), 400, "InvalidArgument")


def test_a_listing_of_a_missing_bucket_is_no_such_bucket(s3r, expect):
    for answer in both(s3r, Bucket="suite-no-such-bucket"):
        expect(answer, 404, "NoSuchBucket")


def test_a_listing_sees_a_put_and_a_delete_at_once(s3, s3r, bucket):
    for number in range(5):
        s3.put_object(Bucket=bucket, Key=f"key-{number}", Body=b"x")
        assert keys(s3r.list_objects_v2(Bucket=bucket)) == [f"key-{n}" for n in range(number + 1)]
    s3.delete_object(Bucket=bucket, Key="key-2")
    assert keys(s3r.list_objects_v2(Bucket=bucket)) == ["key-0", "key-1", "key-3", "key-4"]


def test_a_listing_after_an_overwrite_has_the_new_size(s3, s3r, bucket):
    for size in (10, 20, 5):
        s3.put_object(Bucket=bucket, Key="key", Body=b"x" * size)
        assert s3r.list_objects_v2(Bucket=bucket)["Contents"][0]["Size"] == size


def test_a_thousand_and_more_keys_come_in_two_pages(s3, s3r, bucket):
    wanted = [f"n/{number:05d}" for number in range(1010)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s3.boto.put_object(Bucket=bucket, Key=key, Body=b""), wanted))
    first = s3r.list_objects_v2(Bucket=bucket)
    assert (len(keys(first)), first["IsTruncated"]) == (1000, True)
    second = s3r.list_objects_v2(Bucket=bucket, ContinuationToken=first["NextContinuationToken"])
    assert keys(first) + keys(second) == wanted
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in wanted[:1000]], "Quiet": True})
    assert answer.status == 200
    assert keys(s3r.list_objects_v2(Bucket=bucket)) == wanted[1000:]


def test_buckets_are_listed(s3r, bucket, make_bucket, expect):
    other = make_bucket()
    # The names of other buckets of the store are not the case's business: not recorded.
    names = [entry["Name"] for entry in s3r.boto.list_buckets()["Buckets"]]
    assert bucket in names and other in names
