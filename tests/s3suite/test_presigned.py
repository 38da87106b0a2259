"""Presigned URLs: good for one method, one target and a while; every change of them is refused."""

import pytest
import requests
from client import boto
from data import made

DATA = made(40_000, "presigned")


@pytest.fixture
def stored(s3, bucket):
    s3.boto.put_object(Bucket=bucket, Key="object", Body=DATA, ContentType="text/x-suite")
    return bucket


def test_get(rawr, stored, expect):
    assert expect(rawr.presigned("GET", stored, "object"), 200).body == DATA


def test_head(rawr, stored, expect):
    answer = expect(rawr.presigned("HEAD", stored, "object"), 200)
    assert (answer.body, answer.header("content-length")) == (b"", str(len(DATA)))


def test_put(raw, s3r, bucket, expect):
    expect(raw.presigned("PUT", bucket, "object", body=DATA), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


def test_delete(raw, s3r, stored, expect):
    expect(raw.presigned("DELETE", stored, "object"), 204)
    expect(s3r.head_object(Bucket=stored, Key="object"), 404)


def test_a_range_may_be_asked_for(rawr, stored, expect):
    assert expect(rawr.presigned("GET", stored, "object", headers={"range": "bytes=10-19"}), 206).body == DATA[10:20]


def test_a_list_of_keys(rawr, stored, expect):
    assert b"<Key>object</Key>" in expect(rawr.presigned("GET", stored, "", query=[("list-type", "2")]), 200).body


@pytest.mark.parametrize("key", ["a b", "ä/ö", "a+b", "a%20b", "a&b=c", "~x'()"])
def test_odd_keys(raw, rawr, bucket, expect, key):
    expect(raw.presigned("PUT", bucket, key, body=key.encode()), 200)
    assert expect(rawr.presigned("GET", bucket, key), 200).body == key.encode()


def test_an_override_is_part_of_what_is_signed(rawr, stored, expect):
    answer = expect(rawr.presigned("GET", stored, "object", query=[("response-content-type", "text/other")]), 200)
    assert answer.header("content-type") == "text/other"
    expect(rawr.presigned("GET", stored, "object", bend=lambda query: query + [("response-content-type", "text/other")]), 403, "SignatureDoesNotMatch")


def test_expired(rawr, stored, expect):
    expect(rawr.presigned("GET", stored, "object", expires=60, signer=rawr.signer(skew_seconds=-120)), 403, "AccessDenied")


def test_old_but_not_expired(rawr, stored, expect):
    """Longer ago than the fifteen minutes that a header signature would have."""
    expect(rawr.presigned("GET", stored, "object", expires=7200, signer=rawr.signer(skew_seconds=-3600)), 200)


def test_not_yet_valid(rawr, stored, expect):
    expect(rawr.presigned("GET", stored, "object", signer=rawr.signer(skew_seconds=3600)), {"403 AccessDenied", "403 RequestTimeTooSkewed"})


@pytest.mark.parametrize("expires", [604801, -1, 0], ids=["over_a_week", "negative", "zero"])
def test_an_expiry_out_of_range_is_refused(rawr, stored, refused, expires):
    refused(rawr.presigned("GET", stored, "object", expires=expires))


def test_an_expiry_that_is_no_number_is_refused(rawr, stored, refused):
    refused(rawr.presigned("GET", stored, "object", bend=lambda query: replaced(query, "X-Amz-Expires", "soon")))


def test_a_wrong_secret(rawr, stored, expect):
    expect(rawr.presigned("GET", stored, "object", signer=rawr.signer(secret_key="wrong" * 8)), 403, "SignatureDoesNotMatch")


def test_an_unknown_key(rawr, stored, expect):
    expect(rawr.presigned("GET", stored, "object", signer=rawr.signer(access_key="AKIANOBODYKNOWSTHIS0")), 403, "InvalidAccessKeyId")


CHANGES = {"X-Amz-Expires": "600", "X-Amz-Date": "20300101T000000Z", "X-Amz-Signature": "0" * 64, "X-Amz-SignedHeaders": "host;x-amz-date"}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_parameter_is_refused(rawr, stored, refused, name):
    refused(rawr.presigned("GET", stored, "object", bend=lambda query: replaced(query, name, CHANGES[name])))


@pytest.mark.parametrize("name", ["X-Amz-Expires", "X-Amz-Date", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Credential", "X-Amz-Algorithm"])
def test_a_missing_parameter_is_refused(rawr, stored, refused, name):
    refused(rawr.presigned("GET", stored, "object", bend=lambda query: [pair for pair in query if pair[0] != name]))


def test_a_url_for_get_does_not_delete(raw, s3r, stored, expect):
    expect(raw.presigned("GET", stored, "object", send_method="DELETE"), 403, "SignatureDoesNotMatch")
    expect(s3r.head_object(Bucket=stored, Key="object"), 200)


def test_a_url_for_get_does_not_put(raw, s3r, stored, expect):
    expect(raw.presigned("GET", stored, "object", send_method="PUT", body=b"forged"), 403, "SignatureDoesNotMatch")
    assert s3r.get_object(Bucket=stored, Key="object").body == DATA


def test_an_extra_parameter_is_refused(rawr, stored, expect):
    expect(rawr.presigned("GET", stored, "object", bend=lambda query: query + [("tagging", "")]), 403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_the_urls_that_boto3_makes(reader, s3r, stored, observe, version):
    """"s3" is what boto3 makes by default for an endpoint of one's own: SigV2, which AWS itself refuses by now."""
    url = boto(reader, signature_version=version).generate_presigned_url("get_object", Params={"Bucket": stored, "Key": "object"}, ExpiresIn=300)
    answer = requests.get(url, timeout=30)
    observe(f"GET by {version}", {"status": answer.status_code})
    assert answer.status_code == 200 or (version == "s3" and answer.status_code in (400, 403))
    assert answer.status_code != 200 or answer.content == DATA


def test_a_post_form(writer, s3r, bucket, observe):
    form = boto(writer).generate_presigned_post(bucket, "by-form", ExpiresIn=300)
    answer = requests.post(form["url"], data=form["fields"], files={"file": DATA}, timeout=30)
    observe("POST", {"status": answer.status_code})
    assert answer.status_code == 204
    assert s3r.get_object(Bucket=bucket, Key="by-form").body == DATA


def test_a_post_form_with_a_wrong_signature_stores_nothing(writer, s3r, bucket, observe, expect):
    form = boto(writer).generate_presigned_post(bucket, "by-form", ExpiresIn=300)
    fields = form["fields"] | {"x-amz-signature": "0" * 64}
    answer = requests.post(form["url"], data=fields, files={"file": DATA}, timeout=30)
    observe("POST", {"status": answer.status_code})
    assert answer.status_code == 403
    expect(s3r.head_object(Bucket=bucket, Key="by-form"), 404)


def replaced(query: list[tuple[str, str]], name: str, value: str) -> list[tuple[str, str]]:
    return [(found, value if found == name else old) for found, old in query]
