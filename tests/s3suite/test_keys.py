"""Keys: any UTF-8 up to 1,024 bytes, taken as it is; no normalisation, no folders."""

import pytest

ODD = {
    "space": "a b", "plus": "a+b", "percent": "a%b", "percent_escape": "a%20b", "double_escape": "a%2520b", "ampersand": "a&b=c",
    "question": "a?b", "hash": "a#b", "colon": "a:b", "semicolon": "a;b", "at": "a@b", "dollar": "$a", "comma": "a,b", "quotes": "a\"b'c",
    "angle": "<a>", "brackets": "[a]{b}", "backslash": "a\\b", "caret": "a^b`c|d", "tilde": "~a", "star": "a*b(c)!", "umlaut": "äöü/ß",
    "japanese": "日本語", "emoji": "🦀/🦀", "combining": "e\u0301", "dot": ".hidden", "dots": "a...b", "double_slash": "a//b",
    "trailing_slash": "dir/", "leading_slash": "/a", "only_slash_inside": "a/b/c/d/e/f/g/h", "trailing_space": "a ", "trailing_dot": "a.",
    "looks_like_query": "a?list-type=2", "looks_like_escape_of_slash": "a%2Fb", "longest": "k" * 1024, "long_unicode": "ä" * 512,
    "one_character": "z", "spaces_alone": "   ",
}


@pytest.mark.parametrize("name", ODD)
def test_a_key_is_put_read_listed_and_deleted(s3, s3r, bucket, expect, name):
    key, body = ODD[name], ODD[name].encode()
    expect(s3.put_object(Bucket=bucket, Key=key, Body=body), 200)
    assert expect(s3r.get_object(Bucket=bucket, Key=key), 200).body == body
    expect(s3r.head_object(Bucket=bucket, Key=key), 200)
    assert [entry["Key"] for entry in s3r.list_objects_v2(Bucket=bucket)["Contents"]] == [key]
    assert [entry["Key"] for entry in s3r.list_objects_v2(Bucket=bucket, Prefix=key[:-1])["Contents"]] == [key]
    expect(s3.delete_object(Bucket=bucket, Key=key), 204)
    expect(s3r.get_object(Bucket=bucket, Key=key), 404, "NoSuchKey")


def test_a_key_of_1025_bytes_is_too_long(s3, bucket, expect):
    expect(s3.put_object(Bucket=bucket, Key="k" * 1025, Body=b"x"), 400, "KeyTooLongError")


def test_alike_keys_are_different_objects(s3, s3r, bucket):
    keys = ["a", "A", "a/", "a//", "/a", "a b", "a+b", "a%20b", "a%2Fb", "a/b", "é", "e\u0301", "x", "x/y"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=f"body of {key}".encode())
    for key in keys:
        assert s3r.get_object(Bucket=bucket, Key=key).body == f"body of {key}".encode()
    listed = [entry["Key"] for entry in s3r.list_objects_v2(Bucket=bucket)["Contents"]]
    assert listed == sorted(keys, key=str.encode)


@pytest.mark.parametrize("key", ["a/./b", "a/../b", "../a", "./a", ".", ".."])
def test_dots_are_not_a_path(raw, rawr, bucket, expect, key):
    """Some clients fold them away, so this goes over the socket. A service may refuse them, but must not fold them."""
    put = expect(raw.call("PUT", bucket, key, body=b"dots"), {"200", "400 InvalidURI", "400 InvalidRequest", "400 InvalidArgument"})
    if put.status == 200:
        assert expect(rawr.call("GET", bucket, key), 200).body == b"dots"
        assert f"<Key>{key}</Key>".encode() in rawr.call("GET", bucket, query=[("list-type", "2")]).body


def test_bytes_may_be_escaped_that_need_not_be(raw, rawr, bucket, expect):
    expect(raw.call("PUT", bucket, "key-1", body=b"x"), 200)
    path = f"/{bucket}/%6b%65y%2D1"
    signer = rawr.signer()
    headers = signer.authorize("GET", f"/{bucket}/key-1", [], {"host": rawr.to.authority}, "UNSIGNED-PAYLOAD")
    expect(rawr.send("GET", path, headers), 200)
