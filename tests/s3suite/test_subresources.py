"""What hangs on a bucket or an object: ACL, CORS, policy, lifecycle, tags and the rest. Passed through or refused, but as S3 does."""

import json

import pytest


def config(name: str, put: dict, got: str, missing: str | None, delete: bool = True):
    return pytest.param(name, put, got, missing, delete, id=name)


RULE = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 30}}
CORS = {"AllowedOrigins": ["https://example.org"], "AllowedMethods": ["GET", "PUT"], "AllowedHeaders": ["*"], "MaxAgeSeconds": 60}
BLOCK = {"BlockPublicAcls": True, "IgnorePublicAcls": True, "BlockPublicPolicy": False, "RestrictPublicBuckets": False}
SSE = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}

# boto3's name of the resource, what to put, the element of the answer to look at, the code where there is none.
CONFIGURATIONS = [
    config("bucket_cors", {"CORSConfiguration": {"CORSRules": [CORS]}}, "CORSRules", "NoSuchCORSConfiguration"),
    config("bucket_lifecycle_configuration", {"LifecycleConfiguration": {"Rules": [RULE]}}, "Rules", "NoSuchLifecycleConfiguration", False),
    config("bucket_tagging", {"Tagging": {"TagSet": [{"Key": "a", "Value": "1"}]}}, "TagSet", "NoSuchTagSet"),
    config("bucket_website", {"WebsiteConfiguration": {"IndexDocument": {"Suffix": "index.html"}}}, "IndexDocument", "NoSuchWebsiteConfiguration"),
    config("public_access_block", {"PublicAccessBlockConfiguration": BLOCK}, "PublicAccessBlockConfiguration", "NoSuchPublicAccessBlockConfiguration"),
    config("bucket_encryption", {"ServerSideEncryptionConfiguration": SSE}, "ServerSideEncryptionConfiguration", None),
]


@pytest.mark.parametrize("name,put,got,missing,delete", CONFIGURATIONS)
def test_a_configuration_is_put_read_and_deleted(s3, s3r, bucket, check, name, put, got, missing, delete):
    if missing:
        check("before", getattr(s3r, f"get_{name}")(Bucket=bucket).verdict, f"404 {missing}")
    written = getattr(s3, f"put_{name}")(Bucket=bucket, **put)
    check("put", written.status, 200)
    if written.status == 200:
        check("read", getattr(s3r, f"get_{name}")(Bucket=bucket).get(got) is not None, True)
    if delete:
        check("delete", getattr(s3, f"delete_{name}")(Bucket=bucket).status, 204)
        if missing:
            check("after", getattr(s3r, f"get_{name}")(Bucket=bucket).verdict, f"404 {missing}")


def test_a_lifecycle_is_deleted(s3, s3r, bucket, expect):
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [RULE]})
    expect(s3.delete_bucket_lifecycle(Bucket=bucket), 204)
    expect(s3r.get_bucket_lifecycle_configuration(Bucket=bucket), 404, "NoSuchLifecycleConfiguration")


def test_a_policy_is_put_read_and_deleted(s3, s3r, bucket, expect):
    expect(s3r.get_bucket_policy(Bucket=bucket), 404, "NoSuchBucketPolicy")
    policy = {"Version": "2012-10-17", "Statement": [
        {"Sid": "x", "Effect": "Deny", "Principal": "*", "Action": "s3:PutBucketWebsite", "Resource": f"arn:aws:s3:::{bucket}"}]}
    if expect(s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy)), {"204", "200"}).status >= 400:
        return  # A refusal is a known deviation: nothing was taken, so there is nothing more to see.
    assert json.loads(expect(s3r.get_bucket_policy(Bucket=bucket), 200)["Policy"]) == policy
    expect(s3r.get_bucket_policy_status(Bucket=bucket), 200)
    expect(s3.delete_bucket_policy(Bucket=bucket), 204)
    expect(s3r.get_bucket_policy(Bucket=bucket), 404, "NoSuchBucketPolicy")


@pytest.mark.parametrize("text", ["not json", "{}", '{"Version": "2012-10-17"}', '{"Version": "2012-10-17", "Statement": [{"Effect": "Maybe"}]}'],
                         ids=["text", "empty", "no_statement", "bad_effect"])
def test_a_policy_that_is_none_is_malformed(s3, bucket, expect, text):
    expect(s3.put_bucket_policy(Bucket=bucket, Policy=text), 400, "MalformedPolicy")


def test_the_acl_of_a_bucket(s3, s3r, bucket, expect):
    acl = expect(s3r.get_bucket_acl(Bucket=bucket), 200)
    assert [grant["Permission"] for grant in acl["Grants"]] == ["FULL_CONTROL"]
    taken = expect(s3.put_bucket_acl(Bucket=bucket, ACL="public-read"), 200).status == 200
    now = sorted(grant["Permission"] for grant in s3r.get_bucket_acl(Bucket=bucket)["Grants"])
    assert now == (["FULL_CONTROL", "READ"] if taken else ["FULL_CONTROL"])
    expect(s3.put_bucket_acl(Bucket=bucket, ACL="private"), 200)


def test_the_acl_of_an_object(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    assert [grant["Permission"] for grant in expect(s3r.get_object_acl(Bucket=bucket, Key="object"), 200)["Grants"]] == ["FULL_CONTROL"]
    taken = expect(s3.put_object_acl(Bucket=bucket, Key="object", ACL="public-read"), 200).status == 200
    assert len(s3r.get_object_acl(Bucket=bucket, Key="object")["Grants"]) == (2 if taken else 1)
    assert s3r.get_object(Bucket=bucket, Key="object").body == b"x"


def test_a_canned_acl_with_the_put(s3, s3r, bucket, expect):
    taken = expect(s3.put_object(Bucket=bucket, Key="object", Body=b"x", ACL="public-read"), 200).status == 200
    assert len(s3r.get_object_acl(Bucket=bucket, Key="object").get("Grants", [])) == (2 if taken else 0)


def test_an_acl_of_a_missing_key_is_no_such_key(s3r, bucket, expect):
    expect(s3r.get_object_acl(Bucket=bucket, Key="missing"), 404, "NoSuchKey")


def test_an_acl_that_does_not_exist_is_refused(raw, bucket, refused):
    refused(raw.call("PUT", bucket, query=[("acl", "")], headers={"x-amz-acl": "everyone-may-everything"}))


@pytest.mark.parametrize("read", ["get_bucket_location", "get_bucket_request_payment", "get_bucket_logging", "get_bucket_notification_configuration",
                                  "get_bucket_accelerate_configuration"])
def test_a_bucket_tells(s3r, bucket, expect, read):
    expect(getattr(s3r, read)(Bucket=bucket), 200)


@pytest.mark.parametrize("read,code", [
    ("get_object_lock_configuration", "ObjectLockConfigurationNotFoundError"), ("get_bucket_replication", "ReplicationConfigurationNotFoundError"),
    ("get_bucket_ownership_controls", None)])
def test_what_is_not_configured_is_told(s3r, bucket, check, read, code):
    answer = getattr(s3r, read)(Bucket=bucket)
    check("answer", answer.verdict, f"404 {code}" if code else {"404 OwnershipControlsNotFoundError", "200"})


@pytest.mark.parametrize("name", ["ab", "UPPER-case-bucket", "under_score", "192.168.1.1", "-dash-first", "x" * 64])
def test_a_bad_bucket_name_is_refused(raw, expect, name):
    expect(raw.call("PUT", name), 400, "InvalidBucketName")


def test_a_bucket_of_ones_own_can_be_made_again(s3, s3r, bucket, expect):
    s3.put_object(Bucket=bucket, Key="object", Body=b"stays")
    expect(s3.create_bucket(Bucket=bucket), {"200", "409 BucketAlreadyOwnedByYou"})
    assert s3r.get_object(Bucket=bucket, Key="object").body == b"stays"


@pytest.mark.parametrize("method,query", [
    ("POST", [("nonsense", "")]), ("PATCH", []), ("PUT", [("inventory", ""), ("id", "x")]), ("GET", [("analytics", ""), ("id", "x")])],
                         ids=["post_nonsense", "patch", "inventory", "analytics"])
def test_what_no_store_here_knows_changes_nothing(raw, s3, s3r, bucket, method, query):
    s3.put_object(Bucket=bucket, Key="object", Body=b"stays")
    raw.call(method, bucket, query=query)
    assert s3r.get_object(Bucket=bucket, Key="object").body == b"stays"


@pytest.mark.needs("object_lock")
def test_object_lock_keeps_a_version(s3, s3r, make_bucket, expect):
    bucket = make_bucket(ObjectLockEnabledForBucket=True)
    version = expect(s3.put_object(Bucket=bucket, Key="object", Body=b"held"), 200)["VersionId"]
    expect(s3.put_object_legal_hold(Bucket=bucket, Key="object", LegalHold={"Status": "ON"}), 200)
    assert s3r.get_object_legal_hold(Bucket=bucket, Key="object")["LegalHold"]["Status"] == "ON"
    expect(s3.delete_object(Bucket=bucket, Key="object", VersionId=version), 403, "AccessDenied")
    assert s3r.get_object(Bucket=bucket, Key="object", VersionId=version).body == b"held"
    expect(s3.put_object_legal_hold(Bucket=bucket, Key="object", LegalHold={"Status": "OFF"}), 200)
