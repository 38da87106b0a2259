"""What an object carries beside its bytes: system headers, user metadata, overrides in the answer, tags."""

from datetime import datetime, timezone

import pytest
from data import etag

SYSTEM = {
    "ContentType": "application/x-suite; charset=utf-8", "CacheControl": "max-age=30, private", "ContentLanguage": "de, en",
    "ContentDisposition": 'attachment; filename="a b.txt"', "ContentEncoding": "gzip",
}


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_header_comes_back(s3, s3r, bucket, check, name):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", **{name: SYSTEM[name]})
    check("head", s3r.head_object(Bucket=bucket, Key="object").get(name), SYSTEM[name])
    check("get", s3r.get_object(Bucket=bucket, Key="object").get(name), SYSTEM[name])


def test_expires_comes_back(s3, s3r, bucket, check):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Expires=datetime(2037, 5, 4, 3, 2, 1, tzinfo=timezone.utc))
    check("expires", s3r.head_object(Bucket=bucket, Key="object").header("expires"), "Mon, 04 May 2037 03:02:01 GMT")


def test_without_a_content_type_it_is_binary(s3, s3r, bucket, check):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    check("content type", s3r.head_object(Bucket=bucket, Key="object")["ContentType"], "binary/octet-stream")


METADATA = {
    "one": {"colour": "blue"}, "several": {"a": "1", "b": "2", "c-d": "3"}, "spaces_inside": {"a": "x y  z"}, "empty": {"a": ""},
    "punctuation": {"a": "=,;:\"'/\\%20+&"}, "long": {"a": "v" * 1500}, "upper_case_value": {"a": "MiXed"},
    "encoded_word": {"a": "=?UTF-8?B?Z3LDvG4=?="},
}


@pytest.mark.parametrize("name", METADATA)
def test_user_metadata_comes_back(s3, s3r, bucket, check, name):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Metadata=METADATA[name])
    check("head", s3r.head_object(Bucket=bucket, Key="object")["Metadata"], METADATA[name])
    check("get", s3r.get_object(Bucket=bucket, Key="object")["Metadata"], METADATA[name])


def test_metadata_above_two_kilobytes_is_refused(s3, bucket, expect):
    expect(s3.put_object(Bucket=bucket, Key="object", Body=b"x", Metadata={"a": "v" * 3000}), 400, "MetadataTooLarge")


def test_an_overwrite_drops_the_old_metadata(s3, s3r, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", Metadata={"a": "1"}, CacheControl="no-cache")
    assert s3r.head_object(Bucket=bucket, Key="object")["Metadata"] == {"a": "1"}
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    head = s3r.head_object(Bucket=bucket, Key="object")
    assert (head["Metadata"], head.get("CacheControl")) == ({}, None)


OVERRIDES = {
    "ResponseContentType": ("content-type", "text/other"), "ResponseCacheControl": ("cache-control", "no-store"),
    "ResponseContentDisposition": ("content-disposition", "inline; filename=x"), "ResponseContentLanguage": ("content-language", "fr"),
    "ResponseContentEncoding": ("content-encoding", "identity"),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_a_signed_reader_may_override_a_header(s3, s3r, bucket, expect, check, name):
    header, value = OVERRIDES[name]
    s3.put_object(Bucket=bucket, Key="object", Body=b"x", ContentType="text/x-suite")
    check(header, expect(s3r.get_object(Bucket=bucket, Key="object", **{name: value}), 200).header(header), value)
    assert s3r.get_object(Bucket=bucket, Key="object")["ContentType"] == "text/x-suite"


def tags(answer) -> dict:
    return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}


@pytest.mark.needs("tagging")
class TestTags:
    def test_tags_are_put_read_and_deleted(self, s3, s3r, bucket, expect):
        s3.put_object(Bucket=bucket, Key="object", Body=b"x")
        tag_set = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "b c", "Value": "ä+/"}]}
        expect(s3.put_object_tagging(Bucket=bucket, Key="object", Tagging=tag_set), 200)
        assert tags(expect(s3r.get_object_tagging(Bucket=bucket, Key="object"), 200)) == {"a": "1", "b c": "ä+/"}
        expect(s3.delete_object_tagging(Bucket=bucket, Key="object"), 204)
        assert tags(s3r.get_object_tagging(Bucket=bucket, Key="object")) == {}

    def test_tags_by_header(self, s3, s3r, bucket, expect):
        expect(s3.put_object(Bucket=bucket, Key="object", Body=b"x", Tagging="a=1&b%20c=2"), 200)
        assert tags(s3r.get_object_tagging(Bucket=bucket, Key="object")) == {"a": "1", "b c": "2"}

    def test_the_count_of_tags_is_told(self, s3, s3r, bucket, check):
        s3.put_object(Bucket=bucket, Key="object", Body=b"x")
        assert s3r.get_object(Bucket=bucket, Key="object").header("x-amz-tagging-count") is None
        s3.put_object_tagging(Bucket=bucket, Key="object", Tagging={"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]})
        check("count", s3r.get_object(Bucket=bucket, Key="object").header("x-amz-tagging-count"), "2")

    def test_a_tag_changes_neither_bytes_nor_etag(self, s3, s3r, bucket):
        s3.put_object(Bucket=bucket, Key="object", Body=b"bytes")
        s3.put_object_tagging(Bucket=bucket, Key="object", Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
        got = s3r.get_object(Bucket=bucket, Key="object")
        assert (got.body, got["ETag"]) == (b"bytes", etag(b"bytes"))

    def test_more_than_ten_tags_are_refused(self, s3, bucket, expect):
        s3.put_object(Bucket=bucket, Key="object", Body=b"x")
        tag_set = {"TagSet": [{"Key": f"k{number}", "Value": "v"} for number in range(11)]}
        expect(s3.put_object_tagging(Bucket=bucket, Key="object", Tagging=tag_set), {"400 BadRequest", "400 InvalidTag"})

    def test_a_tag_twice_is_refused(self, s3, bucket, expect):
        s3.put_object(Bucket=bucket, Key="object", Body=b"x")
        tag_set = {"TagSet": [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]}
        expect(s3.put_object_tagging(Bucket=bucket, Key="object", Tagging=tag_set), 400, "InvalidTag")

    def test_tags_of_a_missing_key_are_no_such_key(self, s3, s3r, bucket, expect):
        expect(s3r.get_object_tagging(Bucket=bucket, Key="missing"), 404, "NoSuchKey")

    def test_a_copy_takes_the_tags_along_or_replaces_them(self, s3, s3r, bucket, check):
        s3.put_object(Bucket=bucket, Key="object", Body=b"x", Tagging="a=1")
        source = {"Bucket": bucket, "Key": "object"}
        s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)
        check("copied", tags(s3r.get_object_tagging(Bucket=bucket, Key="copy")), {"a": "1"})
        s3.copy_object(Bucket=bucket, Key="other", CopySource=source, TaggingDirective="REPLACE", Tagging="b=2")
        check("replaced", tags(s3r.get_object_tagging(Bucket=bucket, Key="other")), {"b": "2"})
