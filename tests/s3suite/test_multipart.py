"""Multipart uploads: parts become one object on completion and not before; the errors of each step."""

import pytest
from data import PART_BYTES, etag, made, multipart_etag

PART_1, PART_2, TAIL = made(PART_BYTES, "part 1"), made(PART_BYTES + 333, "part 2"), made(1234, "tail")
KEY = "assembled"


@pytest.fixture
def upload(s3, bucket, recorder):
    """upload(**arguments) → upload id of KEY."""

    def begin(**arguments) -> str:
        answer = s3.create_multipart_upload(Bucket=bucket, Key=KEY, **arguments)
        assert answer.status == 200
        return answer["UploadId"]

    return begin


@pytest.fixture
def put_part(s3, bucket):
    def put(upload_id: str, number: int, data: bytes) -> dict:
        answer = s3.upload_part(Bucket=bucket, Key=KEY, UploadId=upload_id, PartNumber=number, Body=data)
        assert answer.status == 200
        return {"PartNumber": number, "ETag": answer["ETag"]}

    return put


@pytest.fixture
def complete(s3, bucket):
    def finish(upload_id: str, parts: list[dict], **arguments):
        return s3.complete_multipart_upload(Bucket=bucket, Key=KEY, UploadId=upload_id, MultipartUpload={"Parts": parts}, **arguments)

    return finish


def test_three_parts_become_one_object(s3r, bucket, upload, put_part, complete, expect, check):
    upload_id = upload(ContentType="text/x-suite", Metadata={"made": "in parts"})
    parts = [put_part(upload_id, number, data) for number, data in ((1, PART_1), (2, PART_2), (3, TAIL))]
    done = expect(complete(upload_id, parts), 200)
    wanted = multipart_etag([PART_1, PART_2, TAIL])
    check("etag of complete", done["ETag"], wanted)
    got = expect(s3r.get_object(Bucket=bucket, Key=KEY), 200)
    assert got.body == PART_1 + PART_2 + TAIL
    assert (got["ContentType"], got["Metadata"]) == ("text/x-suite", {"made": "in parts"})
    check("etag of get", got["ETag"], wanted)


def test_nothing_is_visible_before_completion(s3r, bucket, upload, put_part, complete, expect):
    upload_id = upload()
    part = put_part(upload_id, 1, TAIL)
    expect(s3r.get_object(Bucket=bucket, Key=KEY), 404, "NoSuchKey")
    expect(s3r.head_object(Bucket=bucket, Key=KEY), 404)
    assert s3r.list_objects_v2(Bucket=bucket).get("Contents", []) == []
    expect(complete(upload_id, [part]), 200)
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == TAIL


def test_the_old_object_stays_until_completion(s3, s3r, bucket, upload, put_part, complete):
    s3.put_object(Bucket=bucket, Key=KEY, Body=b"old")
    upload_id = upload()
    part = put_part(upload_id, 1, TAIL)
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == b"old"
    complete(upload_id, [part])
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == TAIL


def test_part_numbers_may_have_gaps_and_any_order(s3r, bucket, upload, put_part, complete, expect):
    upload_id = upload()
    late, early = put_part(upload_id, 9000, TAIL), put_part(upload_id, 17, PART_1)
    expect(complete(upload_id, [early, late]), 200)
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == PART_1 + TAIL


def test_a_part_sent_again_replaces_the_first(s3r, bucket, upload, put_part, complete, expect):
    upload_id = upload()
    put_part(upload_id, 1, PART_2)
    expect(complete(upload_id, [put_part(upload_id, 1, PART_1), put_part(upload_id, 2, TAIL)]), 200)
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == PART_1 + TAIL


def test_parts_left_out_of_completion_are_not_in_the_object(s3r, bucket, upload, put_part, complete, expect):
    upload_id = upload()
    part, _ = put_part(upload_id, 1, PART_1), put_part(upload_id, 2, TAIL)
    done = expect(complete(upload_id, [part]), 200)
    assert done.status != 200 or s3r.get_object(Bucket=bucket, Key=KEY).body == PART_1


def test_a_part_has_the_etag_of_its_bytes(upload, put_part, check):
    check("etag", put_part(upload(), 1, TAIL)["ETag"], etag(TAIL))


def test_abort_discards_everything(s3, s3r, bucket, upload, put_part, complete, expect):
    upload_id = upload()
    part = put_part(upload_id, 1, TAIL)
    expect(s3.abort_multipart_upload(Bucket=bucket, Key=KEY, UploadId=upload_id), 204)
    expect(complete(upload_id, [part]), 404, "NoSuchUpload")
    expect(s3r.list_parts(Bucket=bucket, Key=KEY, UploadId=upload_id), 404, "NoSuchUpload")
    assert s3r.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
    expect(s3r.head_object(Bucket=bucket, Key=KEY), 404)


def test_abort_of_an_unknown_upload_is_no_such_upload(s3, bucket, expect):
    expect(s3.abort_multipart_upload(Bucket=bucket, Key=KEY, UploadId="2~never-begun"), 404, "NoSuchUpload")


def test_a_part_for_an_unknown_upload_is_no_such_upload(s3, bucket, expect):
    expect(s3.upload_part(Bucket=bucket, Key=KEY, UploadId="2~never-begun", PartNumber=1, Body=b"x"), 404, "NoSuchUpload")


@pytest.mark.parametrize("number", [0, 10001, -1])
def test_a_part_number_out_of_range_is_refused(s3, bucket, upload, expect, number):
    expect(s3.upload_part(Bucket=bucket, Key=KEY, UploadId=upload(), PartNumber=number, Body=b"x"), 400, "InvalidArgument")


def test_a_wrong_part_etag_is_invalid_part(upload, put_part, complete, expect):
    upload_id = upload()
    part = put_part(upload_id, 1, TAIL)
    expect(complete(upload_id, [part | {"ETag": '"00000000000000000000000000000000"'}]), 400, "InvalidPart")


def test_a_part_that_was_never_sent_is_invalid_part(upload, put_part, complete, expect):
    upload_id = upload()
    part = put_part(upload_id, 1, TAIL)
    expect(complete(upload_id, [part, {"PartNumber": 2, "ETag": part["ETag"]}]), 400, "InvalidPart")


def test_parts_in_the_wrong_order_are_invalid_part_order(upload, put_part, complete, expect):
    upload_id = upload()
    first, second = put_part(upload_id, 1, PART_1), put_part(upload_id, 2, PART_1)
    expect(complete(upload_id, [second, first]), 400, "InvalidPartOrder")


def test_a_small_part_before_the_last_is_entity_too_small(s3r, bucket, upload, put_part, complete, expect):
    upload_id = upload()
    parts = [put_part(upload_id, 1, b"small"), put_part(upload_id, 2, TAIL)]
    expect(complete(upload_id, parts), 400, "EntityTooSmall")
    expect(s3r.head_object(Bucket=bucket, Key=KEY), 404)


def test_a_completion_without_parts_is_malformed(raw, bucket, upload, expect):
    body = b'<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></CompleteMultipartUpload>'
    expect(raw.call("POST", bucket, KEY, query=[("uploadId", upload())], body=body), 400, "MalformedXML")


@pytest.mark.parametrize("body", [b"", b"not xml", b"<CompleteMultipartUpload><Part>"], ids=["empty", "text", "cut"])
def test_a_completion_that_is_no_xml_is_refused(raw, bucket, upload, expect, body):
    expect(raw.call("POST", bucket, KEY, query=[("uploadId", upload())], body=body), 400, "MalformedXML")


def test_completing_twice_is_the_same_object_or_no_such_upload(s3r, bucket, upload, put_part, complete, check):
    upload_id = upload()
    part = put_part(upload_id, 1, TAIL)
    complete(upload_id, [part])
    check("second completion", complete(upload_id, [part]).verdict, {"200", "404 NoSuchUpload"})
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == TAIL


def test_list_parts_pages(s3r, bucket, upload, put_part, expect, check):
    upload_id = upload()
    for number in (1, 2, 5):
        put_part(upload_id, number, TAIL)
    whole = expect(s3r.list_parts(Bucket=bucket, Key=KEY, UploadId=upload_id), 200)
    assert [(part["PartNumber"], part["Size"], part["ETag"]) for part in whole["Parts"]] == [(n, 1234, etag(TAIL)) for n in (1, 2, 5)]
    page = expect(s3r.list_parts(Bucket=bucket, Key=KEY, UploadId=upload_id, MaxParts=2), 200)
    assert page["IsTruncated"] is True
    check("next marker", page["NextPartNumberMarker"], 2)
    rest = s3r.list_parts(Bucket=bucket, Key=KEY, UploadId=upload_id, PartNumberMarker=page["NextPartNumberMarker"])
    assert [part["PartNumber"] for part in rest["Parts"]] == [5]


def test_list_uploads_with_prefix_and_pages(s3, s3r, bucket, expect, check):
    for key in ("dir/a", "dir/b", "other"):
        s3.create_multipart_upload(Bucket=bucket, Key=key)
    whole = expect(s3r.list_multipart_uploads(Bucket=bucket), 200)
    assert [entry["Key"] for entry in whole["Uploads"]] == ["dir/a", "dir/b", "other"]
    some = s3r.list_multipart_uploads(Bucket=bucket, Prefix="dir/")
    assert [entry["Key"] for entry in some["Uploads"]] == ["dir/a", "dir/b"]
    page = s3r.list_multipart_uploads(Bucket=bucket, MaxUploads=2)
    assert page["IsTruncated"] is True
    rest = s3r.list_multipart_uploads(Bucket=bucket, KeyMarker=page["NextKeyMarker"], UploadIdMarker=page["NextUploadIdMarker"])
    assert [entry["Key"] for entry in rest["Uploads"]] == ["other"]
    common = s3r.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    check("prefixes", [entry.get("Prefix") for entry in common.get("CommonPrefixes", [])], ["dir/"])


def test_uploads_to_one_key_do_not_mix(s3r, bucket, upload, put_part, complete, expect):
    first, second = upload(), upload()
    part_1, part_2 = put_part(first, 1, b"of the first"), put_part(second, 1, b"of the second")
    expect(complete(second, [part_2]), 200)
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == b"of the second"
    expect(complete(first, [part_1]), 200)
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == b"of the first"


def test_get_by_part_number(s3r, bucket, upload, put_part, complete, expect, check):
    upload_id = upload()
    complete(upload_id, [put_part(upload_id, 1, PART_1), put_part(upload_id, 2, TAIL)])
    got = expect(s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=2), 206)
    assert is_second_part(got)
    check("parts count", got.get("PartsCount"), 2)


def is_second_part(got) -> bool:
    """A part is answered by 206, and by some stores by 200; a store that knows no parts sends the object, by 200."""
    return got.body == TAIL or (got.status == 200 and got.body == PART_1 + TAIL and got.get("PartsCount") is None)


@pytest.fixture
def two_parts(upload, put_part, complete):
    upload_id = upload()
    complete(upload_id, [put_part(upload_id, 1, PART_1), put_part(upload_id, 2, TAIL)])


@pytest.mark.parametrize("number,start,size", [(1, 0, len(PART_1)), (2, len(PART_1), len(TAIL))])
def test_a_part_is_answered_as_a_range_with_the_count_of_parts(s3r, bucket, two_parts, expect, check, number, start, size):
    whole = PART_1 + TAIL
    wanted = f"bytes {start}-{start + size - 1}/{len(whole)}"
    for answer in (expect(s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=number), 206),
                   expect(s3r.head_object(Bucket=bucket, Key=KEY, PartNumber=number), 206)):
        check(f"range {answer.step}", answer.header("content-range"), wanted)
        check(f"count {answer.step}", answer.header("x-amz-mp-parts-count"), "2")
        check(f"length {answer.step}", answer.header("content-length"), str(size))


def test_a_part_read_beside_cached_wholes_is_the_part(s3r, bucket, two_parts, expect):
    """What the parts' answers say (their length, their range) is never taken for the object's."""
    for _ in range(2):
        got = s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=2)
        assert is_second_part(got)
        whole = expect(s3r.get_object(Bucket=bucket, Key=KEY), 200)
        assert whole.body == PART_1 + TAIL and whole.header("content-length") == str(len(PART_1 + TAIL))


def test_a_part_of_the_new_object_after_an_overwrite(s3, s3r, bucket, two_parts, expect):
    s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=1)
    s3.put_object(Bucket=bucket, Key=KEY, Body=b"one piece")
    assert expect(s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=1), 206).body == b"one piece"


def test_a_part_that_is_not_there_is_refused(s3r, bucket, two_parts, expect):
    expect(s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=3), 416, "InvalidPartNumber")
    expect(s3r.head_object(Bucket=bucket, Key=KEY, PartNumber=3), 416)


def test_a_part_and_a_range_together_are_refused(s3r, bucket, two_parts, expect):
    expect(s3r.get_object(Bucket=bucket, Key=KEY, PartNumber=1, Range="bytes=0-1"), 400, "InvalidRequest")


def test_a_wrong_content_md5_refuses_the_part(s3, s3r, bucket, upload, expect):
    upload_id = upload()
    expect(s3.upload_part(Bucket=bucket, Key=KEY, UploadId=upload_id, PartNumber=1, Body=TAIL, ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg=="),
           400, "BadDigest")
    assert s3r.list_parts(Bucket=bucket, Key=KEY, UploadId=upload_id).get("Parts", []) == []
