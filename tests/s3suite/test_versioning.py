"""Versions: every write is kept and can be read by its id; a delete marker hides, deleting by id removes."""

import pytest
from data import made

pytestmark = pytest.mark.needs("versioning")
KEY = "object"
BODIES = [made(100 + number, f"version {number}") for number in range(3)]


@pytest.fixture
def versioned(s3, bucket, expect):
    expect(s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}), 200)
    return bucket


@pytest.fixture
def versions(s3, versioned):
    """The ids of three versions, oldest first."""
    ids = [s3.put_object(Bucket=versioned, Key=KEY, Body=body)["VersionId"] for body in BODIES]
    assert len(set(ids)) == 3
    return ids


def test_the_state_is_told(s3, s3r, bucket, expect):
    assert expect(s3r.get_bucket_versioning(Bucket=bucket), 200).get("Status") is None
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    assert s3r.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert s3r.get_bucket_versioning(Bucket=bucket)["Status"] == "Suspended"


def test_each_version_is_read_by_its_id(s3r, versioned, versions, expect):
    for version, body in zip(versions, BODIES):
        got = expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=version), 200)
        assert (got.body, got["VersionId"]) == (body, version)
        head = expect(s3r.head_object(Bucket=versioned, Key=KEY, VersionId=version), 200)
        assert (head["ContentLength"], head["VersionId"]) == (len(body), version)


def test_without_an_id_the_newest_is_read(s3r, versioned, versions):
    got = s3r.get_object(Bucket=versioned, Key=KEY)
    assert (got.body, got["VersionId"]) == (BODIES[2], versions[2])


def test_reads_by_id_and_without_do_not_mix(s3, s3r, versioned, versions):
    for _ in range(3):
        assert s3r.get_object(Bucket=versioned, Key=KEY).body == BODIES[2]
        assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[0]).body == BODIES[0]
        assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[1], Range="bytes=10-19").body == BODIES[1][10:20]


def test_a_range_of_an_old_version(s3r, versioned, versions, expect):
    assert expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[0], Range="bytes=-10"), 206).body == BODIES[0][-10:]


def test_a_condition_on_an_old_version(s3r, versioned, versions, expect):
    etag = s3r.head_object(Bucket=versioned, Key=KEY, VersionId=versions[0])["ETag"]
    expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[0], IfMatch=etag), 200)
    expect(s3r.get_object(Bucket=versioned, Key=KEY, IfMatch=etag), 412, "PreconditionFailed")
    expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[0], IfNoneMatch=etag), 304)


def test_a_delete_marker_hides_the_object(s3, s3r, versioned, versions, expect, check):
    deleted = expect(s3.delete_object(Bucket=versioned, Key=KEY), 204)
    assert deleted["DeleteMarker"] is True
    gone = expect(s3r.get_object(Bucket=versioned, Key=KEY), 404, "NoSuchKey")
    check("marker told", gone.header("x-amz-delete-marker"), "true")
    check("marker's id told", gone.header("x-amz-version-id"), deleted["VersionId"])
    assert s3r.list_objects_v2(Bucket=versioned).get("Contents", []) == []
    assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[2]).body == BODIES[2]


def test_a_delete_marker_is_no_object(s3, s3r, versioned, versions, expect):
    marker = s3.delete_object(Bucket=versioned, Key=KEY)["VersionId"]
    expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=marker), 405, "MethodNotAllowed")
    expect(s3r.head_object(Bucket=versioned, Key=KEY, VersionId=marker), 405)


def test_deleting_the_marker_brings_the_object_back(s3, s3r, versioned, versions, expect):
    marker = s3.delete_object(Bucket=versioned, Key=KEY)["VersionId"]
    assert s3r.get_object(Bucket=versioned, Key=KEY).status == 404
    expect(s3.delete_object(Bucket=versioned, Key=KEY, VersionId=marker), 204)
    assert s3r.get_object(Bucket=versioned, Key=KEY).body == BODIES[2]


def test_deleting_the_newest_version_uncovers_the_one_before(s3, s3r, versioned, versions, expect):
    assert s3r.get_object(Bucket=versioned, Key=KEY).body == BODIES[2]
    expect(s3.delete_object(Bucket=versioned, Key=KEY, VersionId=versions[2]), 204)
    assert s3r.get_object(Bucket=versioned, Key=KEY).body == BODIES[1]
    expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[2]), 404, "NoSuchVersion")


def test_deleting_an_old_version_leaves_the_newest(s3, s3r, versioned, versions, expect):
    assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[0]).body == BODIES[0]
    expect(s3.delete_object(Bucket=versioned, Key=KEY, VersionId=versions[0]), 204)
    expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[0]), 404, "NoSuchVersion")
    assert s3r.get_object(Bucket=versioned, Key=KEY).body == BODIES[2]


@pytest.mark.parametrize("version", ["nosuchversionnosuchversionnosuchv", "null"])
def test_an_unknown_version(s3r, versioned, versions, expect, version):
    expect(s3r.get_object(Bucket=versioned, Key=KEY, VersionId=version), {"404 NoSuchVersion", "400 InvalidArgument"})


def test_versions_are_listed_newest_first(s3, s3r, versioned, versions, expect):
    marker = s3.delete_object(Bucket=versioned, Key=KEY)["VersionId"]
    s3.put_object(Bucket=versioned, Key="other", Body=b"x")
    answer = expect(s3r.list_object_versions(Bucket=versioned), 200)
    assert [entry["VersionId"] for entry in answer["Versions"] if entry["Key"] == KEY] == versions[::-1]
    assert [(entry["VersionId"], entry["IsLatest"]) for entry in answer["DeleteMarkers"]] == [(marker, True)]


def test_versions_come_in_pages(s3r, versioned, versions):
    first = s3r.list_object_versions(Bucket=versioned, MaxKeys=2)
    assert first["IsTruncated"] is True
    rest = s3r.list_object_versions(Bucket=versioned, KeyMarker=first["NextKeyMarker"], VersionIdMarker=first["NextVersionIdMarker"])
    assert [entry["VersionId"] for entry in first["Versions"] + rest["Versions"]] == versions[::-1]


def test_a_copy_of_an_old_version(s3, s3r, versioned, versions, expect, check):
    done = expect(s3.copy_object(Bucket=versioned, Key="copy", CopySource={"Bucket": versioned, "Key": KEY, "VersionId": versions[0]}), 200)
    check("source version is told", done.header("x-amz-copy-source-version-id") == versions[0], True)
    assert s3r.get_object(Bucket=versioned, Key="copy").body == BODIES[0]


def test_an_object_from_before_versioning_is_version_null(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key=KEY, Body=b"before")
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == b"before"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=bucket, Key=KEY, Body=b"after")
    assert s3r.get_object(Bucket=bucket, Key=KEY, VersionId="null").body == b"before"
    assert s3r.get_object(Bucket=bucket, Key=KEY).body == b"after"


def test_with_versioning_suspended_null_is_overwritten(s3, s3r, versioned, versions):
    s3.put_bucket_versioning(Bucket=versioned, VersioningConfiguration={"Status": "Suspended"})
    for body in (b"first null", b"second null"):
        s3.put_object(Bucket=versioned, Key=KEY, Body=body)
        assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId="null").body == body
        assert s3r.get_object(Bucket=versioned, Key=KEY).body == body
    assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[1]).body == BODIES[1]


def test_a_multipart_upload_makes_a_version(s3, s3r, versioned, versions):
    upload_id = s3.create_multipart_upload(Bucket=versioned, Key=KEY)["UploadId"]
    part = s3.upload_part(Bucket=versioned, Key=KEY, UploadId=upload_id, PartNumber=1, Body=b"in parts")
    done = s3.complete_multipart_upload(Bucket=versioned, Key=KEY, UploadId=upload_id,
                                        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    assert s3r.get_object(Bucket=versioned, Key=KEY).body == b"in parts"
    assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[2]).body == BODIES[2]
    assert done.status == 200


def test_a_batch_deletes_versions_and_makes_markers(s3, s3r, versioned, versions, expect):
    s3.put_object(Bucket=versioned, Key="other", Body=b"x")
    answer = expect(s3.delete_objects(Bucket=versioned, Delete={"Objects": [{"Key": KEY, "VersionId": versions[1]}, {"Key": "other"}]}), 200)
    deleted = {entry["Key"]: entry for entry in answer["Deleted"]}
    assert deleted[KEY]["VersionId"] == versions[1]
    assert deleted["other"]["DeleteMarker"] is True
    assert s3r.get_object(Bucket=versioned, Key=KEY, VersionId=versions[1]).status == 404
    assert s3r.get_object(Bucket=versioned, Key=KEY).body == BODIES[2]
    assert s3r.get_object(Bucket=versioned, Key="other").status == 404


def test_a_bucket_with_versions_left_is_not_deleted(s3, versioned, versions, expect):
    s3.delete_object(Bucket=versioned, Key=KEY)
    expect(s3.delete_bucket(Bucket=versioned), 409, "BucketNotEmpty")


@pytest.mark.needs("tagging")
def test_tags_belong_to_a_version(s3, s3r, versioned, versions):
    s3.put_object_tagging(Bucket=versioned, Key=KEY, VersionId=versions[0], Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
    assert s3r.get_object_tagging(Bucket=versioned, Key=KEY, VersionId=versions[0])["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert s3r.get_object_tagging(Bucket=versioned, Key=KEY)["TagSet"] == []
