"""Owns uploads by an HTML form (POST Object) as boto3's generate_presigned_post prepares them: conditions, ends, answers."""

import base64
import datetime
import hashlib
import hmac
import json
import re
import socket
import urllib.parse
import xml.etree.ElementTree as ElementTree

import pytest
import requests

import data
from client import boto
from endpoint import REGION

DATA = data.made(70_000, "post form")


@pytest.fixture
def post(writer, observe, check):
    """post(form, wanted, file=…): sends a form of boto3's, and holds status and code against S3's."""

    def send(form, wanted, body=DATA, name="data.bin", fields=None, without=(), content_type="application/octet-stream"):
        sent = {key: value for key, value in (form["fields"] | (fields or {})).items() if key not in without}
        answer = requests.post(form["url"], data=sent, files={"file": (name, body, content_type)}, timeout=60, allow_redirects=False)
        code = re.search(r"<Code>(\w+)</Code>", answer.text)
        verdict = f"{answer.status_code} {code[1]}" if code else str(answer.status_code)
        observe("POST", {"verdict": verdict})
        check("POST", verdict, wanted)
        return answer

    return send


@pytest.fixture
def form(writer, bucket):
    def make(key="by-form", fields=None, conditions=None, expires=300, **config):
        conditions = list(conditions or [])
        conditions += [{name: value} for name, value in (fields or {}).items()
                       if not any(name in str(condition) for condition in conditions)]
        return boto(writer, **config).generate_presigned_post(bucket, key, Fields=fields, Conditions=conditions, ExpiresIn=expires)

    return make


def signed(writer, bucket, conditions, at, fields, expires):
    """A form whose policy boto3 would not write: AT may lie in the past."""
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    fields = fields | {"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-date": stamp,
                       "x-amz-credential": f"{writer.access_key}/{day}/{REGION}/s3/aws4_request"}
    document = {"expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "conditions": conditions + [{"bucket": bucket}] + [{name: value} for name, value in fields.items()]}
    policy = base64.b64encode(json.dumps(document).encode()).decode()
    key = f"AWS4{writer.secret_key}".encode()
    for text in (day, REGION, "s3", "aws4_request", policy):
        key = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return {"url": f"{writer.url}/{bucket}", "fields": fields | {"policy": policy, "x-amz-signature": key.hex()}}


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def test_a_form_stores_the_file_its_type_and_its_metadata(form, post, s3r, bucket, check):
    fields = {"Content-Type": "image/png", "Cache-Control": "max-age=5", "x-amz-meta-colour": "blue"}
    answer = post(form(fields=fields), "204")
    found = s3r.get_object(Bucket=bucket, Key="by-form")
    assert found.body == DATA
    check("type", found.parsed.get("ContentType"), "image/png")
    check("cache control", found.parsed.get("CacheControl"), "max-age=5")
    check("metadata", found.parsed.get("Metadata"), {"colour": "blue"})
    check("etag", answer.headers.get("ETag"), found.parsed["ETag"])


@pytest.mark.parametrize("size", [0, 1, 4096, 65_535, 65_536, 5_000_000])
def test_files_of_any_length_and_content(form, post, s3r, bucket, size):
    """Carriage returns at every place: a parser that takes one for the start of a boundary cuts or refuses these."""
    body = (b"\r\n--\r" * (size // 5 + 1))[:size]
    post(form(), "204", body=body)
    assert s3r.get_object(Bucket=bucket, Key="by-form").body == body


@pytest.mark.parametrize("key", ["a b+c%41/ü&=?#", "//x", "dir/"])
def test_keys_are_taken_as_they_stand(form, post, s3r, bucket, key):
    post(form(key), "204")
    assert s3r.get_object(Bucket=bucket, Key=key).body == DATA


def test_the_files_name_becomes_the_key(form, post, s3r, bucket, expect):
    post(form("in/${filename}"), "204", name="cat 1.png")
    assert s3r.get_object(Bucket=bucket, Key="in/cat 1.png").body == DATA
    post(form("in/${filename}"), "204", name="C:\\pictures\\cat 2.png")
    expect(s3r.get_object(Bucket=bucket, Key="in/cat 2.png"), 200)


def test_the_policy_is_held_against_the_expanded_name(form, post, s3r, bucket, expect):
    made = form("in/${filename}", conditions=[["starts-with", "$key", "in/cat"]])
    post(made, "403 AccessDenied", name="dog.png")
    expect(s3r.head_object(Bucket=bucket, Key="in/dog.png"), 404)


@pytest.mark.parametrize(("low", "high", "wanted"), [(70_000, 70_000, "204"), (1, 69_999, "400 EntityTooLarge"), (70_001, 90_000, "400 EntityTooSmall")])
def test_content_length_range(form, post, s3r, bucket, expect, low, high, wanted):
    post(form(conditions=[["content-length-range", low, high]]), wanted)
    expect(s3r.head_object(Bucket=bucket, Key="by-form"), 200 if wanted == "204" else 404)


@pytest.mark.parametrize(("given", "wanted"), [("user/eric/", "204"), ("user/", "403 AccessDenied"), ("USER/ERIC/x", "403 AccessDenied")])
def test_starts_with(form, post, given, wanted):
    made = form("k", fields={"x-amz-meta-path": given}, conditions=[["starts-with", "$x-amz-meta-path", "user/eric/"]])
    post(made, wanted)


@pytest.mark.parametrize(("given", "wanted"), [("red", "204"), ("Red", "403 AccessDenied"), ("", "403 AccessDenied")])
def test_eq(form, post, given, wanted):
    made = form("k", fields={"x-amz-meta-colour": given}, conditions=[["eq", "$x-amz-meta-colour", "red"]])
    post(made, wanted)


def test_a_changed_key_is_refused(form, post, s3r, bucket, expect):
    post(form(), "403 AccessDenied", fields={"key": "another"})
    expect(s3r.head_object(Bucket=bucket, Key="another"), 404)


def test_a_field_that_the_policy_does_not_know_is_refused(form, post):
    post(form(), "403 AccessDenied", fields={"x-amz-meta-more": "1"})


def test_fields_to_ignore_are_ignored(form, post):
    post(form(), "204", fields={"x-ignore-this": "1"})


def test_a_form_of_another_bucket_is_refused(form, post, make_bucket, s3r, expect):
    other, made = make_bucket(), form()
    post(made | {"url": made["url"].rsplit("/", 1)[0] + f"/{other}"}, "403 AccessDenied")
    expect(s3r.head_object(Bucket=other, Key="by-form"), 404)


def test_an_expired_policy(writer, bucket, post, s3r, expect):
    at = now() - datetime.timedelta(minutes=5)
    made = signed(writer, bucket, [], at, {"key": "late"}, at + datetime.timedelta(minutes=1))
    post(made, "403 AccessDenied")
    expect(s3r.head_object(Bucket=bucket, Key="late"), 404)


def test_a_form_is_good_for_as_long_as_its_policy_says(writer, bucket, post, s3r):
    """Signed an hour ago: a quarter of an hour is the measure of signed requests, not of forms."""
    made = signed(writer, bucket, [], now() - datetime.timedelta(hours=1), {"key": "in-time"}, now() + datetime.timedelta(minutes=5))
    post(made, "204")
    assert s3r.get_object(Bucket=bucket, Key="in-time").body == DATA


@pytest.mark.parametrize(("field", "value", "wanted"), [
    ("x-amz-signature", "0" * 64, "403 SignatureDoesNotMatch"),
    ("policy", base64.b64encode(b'{"expiration": "2099-01-01T00:00:00Z", "conditions": []}').decode(), "403 SignatureDoesNotMatch"),
], ids=["signature", "policy"])
def test_what_was_not_signed_so_is_refused(form, post, s3r, bucket, expect, field, value, wanted):
    post(form(), wanted, fields={field: value})
    expect(s3r.head_object(Bucket=bucket, Key="by-form"), 404)


def test_an_unknown_key(form, post):
    made = form()
    post(made, "403 InvalidAccessKeyId", fields={"x-amz-credential": "AKIANOBODYKNOWSTHIS0/" + made["fields"]["x-amz-credential"].split("/", 1)[1]})


def test_a_form_that_nobody_signed_is_refused(form, post):
    post(form(), "403 AccessDenied", without={"policy", "x-amz-signature", "x-amz-credential", "x-amz-algorithm", "x-amz-date"})


@pytest.mark.parametrize("field", ["key", "policy"])
def test_a_missing_field(form, post, field):
    post(form(), {"400 InvalidArgument", "403 AccessDenied"}, without={field})


def test_a_form_without_a_file(form, observe, check):
    made = form()
    answer = requests.post(made["url"], files={name: (None, value) for name, value in made["fields"].items()}, timeout=30)
    observe("POST", {"status": answer.status_code})
    check("POST", answer.status_code, 400)


@pytest.mark.parametrize(("asked", "wanted"), [("200", 200), ("201", 201), ("204", 204), ("404", 204), ("soon", 204)], ids=["200", "201", "204", "404", "soon"])
def test_success_action_status(form, post, s3r, bucket, check, asked, wanted):
    answer = post(form("a b&c", fields={"success_action_status": asked}), str(wanted))
    if wanted == 201:
        document = ElementTree.fromstring(answer.content)
        stored = s3r.head_object(Bucket=bucket, Key="a b&c").parsed
        assert (document.findtext("Bucket"), document.findtext("Key")) == (bucket, "a b&c")
        check("etag", document.findtext("ETag"), stored["ETag"])
        location = urllib.parse.urlsplit(document.findtext("Location"))
        check("location", urllib.parse.unquote(location.path).replace(bucket, "BUCKET"), "/BUCKET/a b&c")
    elif answer.ok:
        assert answer.content == b""


def test_success_action_redirect(form, post, s3r, bucket, check):
    answer = post(form("a b", fields={"success_action_redirect": "http://home.example/done?page=1", "success_action_status": "201"}), "303")
    target = urllib.parse.urlsplit(answer.headers["Location"])
    check("target", f"{target.scheme}://{target.netloc}{target.path}", "http://home.example/done")
    etag = s3r.head_object(Bucket=bucket, Key="a b").parsed["ETag"]
    query = dict(urllib.parse.parse_qsl(target.query))
    assert (query["key"], query["etag"].strip('"')) == ("a b", etag.strip('"'))
    check("page", query["page"].replace(bucket, "BUCKET"), "1")
    check("bucket", query.get("bucket", "").replace(bucket, "BUCKET"), "BUCKET")


def test_a_redirect_that_is_no_url_is_ignored(form, post):
    post(form(fields={"success_action_redirect": "not a url"}), "204")


def test_a_wrong_md5_stores_nothing(form, post, s3r, bucket, expect):
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    post(form(fields={"Content-MD5": wrong}), "400 BadDigest")
    expect(s3r.head_object(Bucket=bucket, Key="by-form"), 404)


def test_tags_and_acl(form, post, s3r, bucket, check):
    tagging = "<Tagging><TagSet><Tag><Key>a</Key><Value>1 &amp; 2</Value></Tag></TagSet></Tagging>"
    post(form(fields={"tagging": tagging, "acl": "private"}), "204")
    found = s3r.get_object_tagging(Bucket=bucket, Key="by-form").parsed
    check("tags", found.get("TagSet"), [{"Key": "a", "Value": "1 & 2"}])


@pytest.mark.needs("form_max")
def test_a_file_beyond_the_bound_is_refused_before_it_is_sent(writer, form, check, s3r, bucket, expect):
    """The gateway holds forms in memory, 64 MiB each unless configured; it says so from the length alone."""
    made = form()
    with socket.create_connection((writer.host, writer.port), timeout=20) as wire:
        wire.sendall((f"POST /{bucket} HTTP/1.1\r\nHost: {writer.authority}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
                      f"Content-Length: {100 << 20}\r\n\r\n").encode())
        answer = wire.recv(65536).decode()
    check("POST", " ".join(answer.split()[1:2] + re.findall(r"<Code>(\w+)</Code>", answer)), "400 EntityTooLarge")
    expect(s3r.head_object(Bucket=bucket, Key=made["fields"]["key"]), 404)


def test_a_form_that_breaks_off_stores_nothing(writer, form, s3r, bucket, expect):
    request = requests.Request("POST", form()["url"], data=form()["fields"], files={"file": DATA}).prepare()
    with socket.create_connection((writer.host, writer.port), timeout=20) as wire:
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        wire.sendall(f"POST /{bucket} HTTP/1.1\r\nHost: {writer.authority}\r\n{head}\r\n".encode() + request.body[:-1000])
        wire.shutdown(socket.SHUT_WR)
        wire.recv(65536)
    expect(s3r.head_object(Bucket=bucket, Key="by-form"), 404)
