"""Owns signature version 2, where the service takes it: in headers and in URLs, as boto3's signature_version="s3" makes them.

verbs3 takes it where `gateway.sigv2` is on, as it is in the suite's configurations; gateway/tests/front holds what it says when off.
"""

import base64
import email.utils
import hashlib
import hmac
import time
import urllib.parse

import pytest
import requests
from botocore.exceptions import ClientError

import data
from client import boto
from endpoint import Endpoint

DATA = data.made(100_000, "sigv2")


@pytest.fixture
def v2(writer):
    return boto(writer, signature_version="s3")


def code_of(call) -> str:
    try:
        call()
    except ClientError as error:
        return f"{error.response['ResponseMetadata']['HTTPStatusCode']} {error.response['Error']['Code']}"
    return "ok"


def test_objects_are_written_listed_read_and_deleted(v2, s3r, bucket):
    v2.put_object(Bucket=bucket, Key="a b/ü+", Body=DATA, ContentType="text/x", Metadata={"colour": "blue"})
    found = v2.get_object(Bucket=bucket, Key="a b/ü+")
    assert found["Body"].read() == DATA and found["Metadata"] == {"colour": "blue"} and found["ContentType"] == "text/x"
    assert v2.get_object(Bucket=bucket, Key="a b/ü+", Range="bytes=5-9")["Body"].read() == DATA[5:10]
    v2.put_object_tagging(Bucket=bucket, Key="a b/ü+", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    assert v2.get_object_tagging(Bucket=bucket, Key="a b/ü+")["TagSet"] == [{"Key": "a", "Value": "b"}]
    v2.delete_object(Bucket=bucket, Key="a b/ü+")
    assert "Contents" not in s3r.list_objects_v2(Bucket=bucket).parsed


def test_requests_about_buckets(v2, bucket, check):
    """boto3 sends /bucket and signs /bucket/."""
    v2.put_object(Bucket=bucket, Key="a", Body=DATA)
    check("list", code_of(lambda: v2.list_objects_v2(Bucket=bucket, Prefix="a", Delimiter="/")), "ok")
    check("acl", code_of(lambda: v2.get_bucket_acl(Bucket=bucket)), {"ok", "501 NotImplemented"})
    check("batch", code_of(lambda: v2.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a"}]})), "ok")


def test_multipart(v2, s3r, bucket):
    upload = v2.create_multipart_upload(Bucket=bucket, Key="m")["UploadId"]
    part = v2.upload_part(Bucket=bucket, Key="m", UploadId=upload, PartNumber=1, Body=DATA)
    v2.complete_multipart_upload(Bucket=bucket, Key="m", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    assert s3r.get_object(Bucket=bucket, Key="m").body == DATA


def test_a_wrong_secret_and_an_unknown_key(writer, bucket, check):
    wrong = boto(Endpoint(writer.url, writer.access_key, "wrong" * 8), signature_version="s3")
    check("wrong", code_of(lambda: wrong.get_object(Bucket=bucket, Key="k")), "403 SignatureDoesNotMatch")
    unknown = boto(Endpoint(writer.url, "AKIANOBODYKNOWSTHIS0", "wrong" * 8), signature_version="s3")
    check("unknown", code_of(lambda: unknown.get_object(Bucket=bucket, Key="k")), "403 InvalidAccessKeyId")


@pytest.mark.parametrize(("seconds", "wanted"), [(0, 200), (-600, 200), (-3600, 403), (3600, 403)])
def test_a_signature_in_headers_lasts_a_quarter_of_an_hour(writer, v2, bucket, observe, check, seconds, wanted):
    v2.put_object(Bucket=bucket, Key="k", Body=DATA)
    date = email.utils.formatdate(time.time() + seconds, usegmt=True)
    text = f"GET\n\n\n{date}\n/{bucket}/k"
    signature = base64.b64encode(hmac.new(writer.secret_key.encode(), text.encode(), hashlib.sha1).digest()).decode()
    answer = requests.get(f"{writer.url}/{bucket}/k", headers={"Date": date, "Authorization": f"AWS {writer.access_key}:{signature}"}, timeout=30)
    observe("GET", {"status": answer.status_code})
    check("GET", answer.status_code, wanted)
    assert wanted != 200 or answer.content == DATA


def test_urls_read_and_write(v2, s3r, bucket):
    url = v2.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "by url"}, ExpiresIn=300)
    assert requests.put(url, data=DATA, timeout=30).status_code == 200
    assert s3r.get_object(Bucket=bucket, Key="by url").body == DATA
    params = {"Bucket": bucket, "Key": "by url", "ResponseContentType": "text/x; a=b"}
    answer = requests.get(v2.generate_presigned_url("get_object", Params=params, ExpiresIn=300), timeout=30)
    assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (200, DATA, "text/x; a=b")


@pytest.mark.parametrize("what", ["expired", "signature", "key", "extended", "method"])
def test_a_url_is_good_for_what_it_was_made_for_alone(v2, bucket, observe, check, what):
    v2.put_object(Bucket=bucket, Key="k", Body=DATA)
    v2.put_object(Bucket=bucket, Key="other", Body=DATA)
    url = urllib.parse.urlsplit(v2.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=-10 if what == "expired" else 300))
    query = dict(urllib.parse.parse_qsl(url.query))
    if what == "signature":
        query["Signature"] = base64.b64encode(bytes(20)).decode()
    elif what == "extended":
        query["Expires"] = str(int(query["Expires"]) + 60)
    path = url.path.replace("/k", "/other") if what == "key" else url.path
    changed = url._replace(path=path, query=urllib.parse.urlencode(query)).geturl()
    answer = requests.request("DELETE" if what == "method" else "GET", changed, timeout=30)
    observe(what, {"status": answer.status_code})
    check(what, answer.status_code, 403)


def test_a_form(v2, s3r, bucket):
    """boto3 signs forms by version 2 where it is told to."""
    form = v2.generate_presigned_post(bucket, "by-form", ExpiresIn=300)
    assert "AWSAccessKeyId" in form["fields"]
    assert requests.post(form["url"], data=form["fields"], files={"file": DATA}, timeout=30).status_code == 204
    assert s3r.get_object(Bucket=bucket, Key="by-form").body == DATA
