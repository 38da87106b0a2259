"""Who is asking: missing, wrong, late and mangled signatures get S3's own codes, for reads and for writes, and store nothing."""

import pytest

DATA = b"authentic"
METHODS = ["GET", "PUT", "DELETE"]


@pytest.fixture
def stored(s3, bucket):
    s3.boto.put_object(Bucket=bucket, Key="object", Body=DATA)
    return bucket


@pytest.fixture
def untouched(s3r, stored):
    """After the case the object is what it was."""
    yield stored
    assert s3r.boto.get_object(Bucket=stored, Key="object")["Body"].read() == DATA


def body_of(method: str) -> bytes:
    return b"forged" if method == "PUT" else b""


@pytest.mark.parametrize("method", METHODS)
def test_a_right_signature_is_let_in(raw, stored, expect, method):
    expect(raw.call(method, stored, "object", body=body_of(method)), 204 if method == "DELETE" else 200)


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_secret_is_signature_does_not_match(raw, untouched, expect, method):
    expect(raw.call(method, untouched, "object", body=body_of(method), signer=raw.signer(secret_key="wrong" * 8)), 403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_key_is_invalid_access_key_id(raw, untouched, expect, method):
    expect(raw.call(method, untouched, "object", body=body_of(method), signer=raw.signer(access_key="AKIANOBODYKNOWSTHIS0")), 403, "InvalidAccessKeyId")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("skew", [-1200, 1200], ids=["late", "early"])
def test_a_skewed_clock_is_request_time_too_skewed(raw, untouched, expect, method, skew):
    expect(raw.call(method, untouched, "object", body=body_of(method), signer=raw.signer(skew_seconds=skew)), 403, "RequestTimeTooSkewed")


@pytest.mark.parametrize("skew", [-600, 600], ids=["late", "early"])
def test_a_clock_within_fifteen_minutes_is_fine(raw, stored, expect, skew):
    expect(raw.call("GET", stored, "object", signer=raw.signer(skew_seconds=skew)), 200)


@pytest.mark.parametrize("method", METHODS + ["HEAD"])
def test_nobody_is_access_denied(raw, untouched, expect, method):
    headers = {"host": raw.to.authority} | ({"content-length": "6"} if method == "PUT" else {})
    expect(raw.send(method, raw.path(untouched, "object"), headers, body_of(method)), 403, None if method == "HEAD" else "AccessDenied")


def test_nobody_lists_a_bucket(raw, untouched, expect):
    expect(raw.send("GET", raw.path(untouched), {"host": raw.to.authority}), 403, "AccessDenied")


@pytest.mark.parametrize("value", [
    "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=", "AWS4-HMAC-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=00",
    "AWS4-HMAC-SHA256 nonsense", "Basic YTpi", "Bearer token", "AWS4-HMAC-SHA512 Credential=a", "", "AWS nonsense"],
    ids=["bare", "empty_credential", "short_scope", "nonsense", "basic", "bearer", "sha512", "empty", "v2_nonsense"])
def test_a_mangled_authorization_is_refused(raw, untouched, refused, value):
    signer = raw.signer()
    headers = {"host": raw.to.authority, "x-amz-date": signer.stamp, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "authorization": value}
    refused(raw.send("GET", raw.path(untouched, "object"), headers))


@pytest.mark.parametrize("change", [
    lambda head: head.pop("x-amz-date"), lambda head: head.update({"x-amz-date": "yesterday"}),
    lambda head: head.update({"x-amz-date": "20010101T000000Z"}), lambda head: head.pop("x-amz-content-sha256"),
    lambda head: head.update({"Authorization": head["Authorization"][:-10]}), lambda head: head.update({"Authorization": head["Authorization"][:-1] + "x"}),
    lambda head: head.update({"Authorization": head["Authorization"].replace("host;", "")})],
    ids=["no_date", "bad_date", "other_date", "no_payload_hash", "short_signature", "no_hex", "host_not_signed"])
def test_a_signed_request_that_was_changed_is_refused(raw, untouched, refused, change):
    headers = raw.signer().authorize("GET", raw.path(untouched, "object"), [], {"host": raw.to.authority}, "UNSIGNED-PAYLOAD")
    change(headers)
    refused(raw.send("GET", raw.path(untouched, "object"), headers))


@pytest.mark.parametrize("target", ["other", "object?versionId=null", "object?acl="], ids=["other_key", "other_query", "sub_resource"])
def test_a_signature_is_for_one_target_only(raw, s3, untouched, expect, target):
    s3.boto.put_object(Bucket=untouched, Key="other", Body=b"other")
    headers = raw.signer().authorize("GET", raw.path(untouched, "object"), [], {"host": raw.to.authority}, "UNSIGNED-PAYLOAD")
    expect(raw.send("GET", f"/{untouched}/{target}", headers), 403, "SignatureDoesNotMatch")


def test_a_signature_is_for_one_method_only(raw, untouched, expect):
    headers = raw.signer().authorize("GET", raw.path(untouched, "object"), [], {"host": raw.to.authority}, "UNSIGNED-PAYLOAD")
    expect(raw.send("DELETE", raw.path(untouched, "object"), headers), 403, "SignatureDoesNotMatch")


def test_a_signed_header_must_not_change(raw, untouched, expect):
    headers = raw.signer().authorize("PUT", raw.path(untouched, "object"), [],
                                     {"host": raw.to.authority, "content-length": "6", "x-amz-meta-a": "1"}, "UNSIGNED-PAYLOAD")
    headers["x-amz-meta-a"] = "2"
    expect(raw.send("PUT", raw.path(untouched, "object"), headers, b"forged"), 403, "SignatureDoesNotMatch")


def test_an_amz_header_that_was_not_signed_is_refused(raw, untouched, expect):
    """S3: "There were headers present in the request which were not signed"; else a copy source could be slipped in."""
    headers = raw.signer().authorize("PUT", raw.path(untouched, "object"), [], {"host": raw.to.authority, "content-length": "0"}, "UNSIGNED-PAYLOAD")
    headers["x-amz-copy-source"] = f"{untouched}/object"
    headers["x-amz-metadata-directive"] = "REPLACE"
    expect(raw.send("PUT", raw.path(untouched, "object"), headers), 403, "AccessDenied")


def test_another_region_is_refused(raw, untouched, refused):
    refused(raw.call("GET", untouched, "object", signer=raw.signer(region="mars-north-1")))


def test_another_service_is_refused(raw, untouched, refused):
    refused(raw.call("GET", untouched, "object", signer=raw.signer(service="sqs")))


def test_spaces_in_a_header_are_folded_for_the_signature(raw, stored, expect):
    expect(raw.call("PUT", stored, "object", headers={"x-amz-meta-a": "  one   two  "}, body=DATA), 200)


def test_the_order_of_parameters_does_not_matter(raw, stored, expect):
    query = [("prefix", "o"), ("list-type", "2"), ("max-keys", "5"), ("delimiter", "/")]
    signed = raw.signer().authorize("GET", raw.path(stored), query, {"host": raw.to.authority}, "UNSIGNED-PAYLOAD")
    expect(raw.send("GET", f"/{stored}?prefix=o&list-type=2&max-keys=5&delimiter=%2F", signed), 200)


def test_a_refused_write_does_not_create(raw, s3r, bucket, expect):
    raw.call("PUT", bucket, "forged", body=b"forged", signer=raw.signer(secret_key="wrong" * 8))
    expect(s3r.get_object(Bucket=bucket, Key="forged"), 404, "NoSuchKey")


@pytest.mark.parametrize("method,query", [("DELETE", []), ("GET", [("policy", "")]), ("POST", [("delete", "")]), ("GET", [("uploads", "")])],
                         ids=["delete_bucket", "policy", "batch_delete", "uploads"])
def test_a_wrong_secret_opens_no_bucket_operation(raw, untouched, expect, method, query):
    expect(raw.call(method, untouched, query=query, signer=raw.signer(secret_key="wrong" * 8)), 403, "SignatureDoesNotMatch")
