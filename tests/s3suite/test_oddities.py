"""What S3 has and hardly anyone serves, and what it has not: each is refused in S3's own words or done, and nothing ends in a 500."""

import pytest

SELECT = (b'<SelectObjectContentRequest xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Expression>select * from s3object</Expression>'
          b"<ExpressionType>SQL</ExpressionType><InputSerialization><CSV/></InputSerialization>"
          b"<OutputSerialization><CSV/></OutputSerialization></SelectObjectContentRequest>")
RESTORE = b'<RestoreRequest xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Days>1</Days></RestoreRequest>'
ARN = "arn:aws:s3:us-east-1:123456789012:accesspoint/point"
LAMBDA = "arn:aws:s3-object-lambda:us-east-1:123456789012:accesspoint/point"


@pytest.fixture
def held(s3, bucket):
    s3.put_object(Bucket=bucket, Key="object", Body=b"a,b\n1,2\n")
    return bucket


def refused_or_done(check, answer):
    """S3's answers to what an endpoint does not serve differ; an error has to be one of S3's, and never the server's."""
    check("served", answer.status < 500 or answer.status == 501, True)
    if answer.status >= 400:
        check("said", answer.code is not None, True)
    return answer


@pytest.mark.parametrize("method,key,query,body", [
    ("GET", "object", [("torrent", "")], b""),
    ("POST", "object", [("select", ""), ("select-type", "2")], SELECT),
    ("POST", "object", [("restore", "")], RESTORE),
    ("GET", "", [("session", "")], b""),
    ("GET", "", [("abac", "")], b""),
    ("GET", "", [("metadataConfiguration", "")], b""),
    ("PUT", "object", [("renameObject", "")], b""),
    ("PUT", "object", [("encryption", "")], b"<x/>"),
    ("POST", "object", [("unheard-of", "")], b""),
], ids=lambda value: value[0][0] if isinstance(value, list) else None)
def test_what_few_serve_is_done_or_refused(raw, held, check, method, key, query, body):
    answer = refused_or_done(check, raw.call(method, held, key, query=query, body=body))
    if query[0][0] == "select" and answer.status == 200:
        assert b"1,2" in answer.body and b"Stats" in answer.body, "the rows, and an end"


def test_nothing_of_it_has_changed_the_object(raw, s3r, held):
    for query in ([("renameObject", "")], [("encryption", "")]):
        raw.call("PUT", held, "object", query=query, body=b"<x/>")
    raw.call("POST", held, "object", query=[("restore", "")], body=RESTORE)
    assert s3r.get_object(Bucket=held, Key="object").body in (b"a,b\n1,2\n", b"<x/>"), "neither the object nor what was put"


@pytest.mark.parametrize("arn", [ARN, LAMBDA], ids=["access_point", "object_lambda"])
@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
def test_an_arn_is_no_bucket_here(raw, check, method, arn):
    answer = raw.call(method, path=f"/{arn.replace(':', '%3A').replace('/', '%2F')}/object", body=b"x" if method == "PUT" else b"")
    check("refused", 400 <= answer.status < 500, True)


def test_an_answer_for_an_object_lambda_is_refused(raw, check):
    answer = raw.call("POST", path="/WriteGetObjectResponse", headers={"x-amz-request-route": "route", "x-amz-request-token": "token"}, body=b"x")
    check("refused", 400 <= answer.status < 500 or answer.status == 501, True)


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "PROPFIND"])
def test_a_method_that_s3_has_not_is_refused(raw, held, check, method):
    answer = raw.call(method, held, "object")
    check("refused", 400 <= answer.status < 500 or answer.status == 501, True)


def test_a_website_redirect_is_kept_and_never_followed(s3, s3r, bucket, expect, check):
    """The REST endpoint tells where the website's would send a browser, and sends the object."""
    expect(s3.put_object(Bucket=bucket, Key="old", Body=b"here", WebsiteRedirectLocation="https://example.org/new"), 200)
    got = expect(s3r.get_object(Bucket=bucket, Key="old"), 200)
    assert got.body == b"here"
    check("told", got.header("x-amz-website-redirect-location"), "https://example.org/new")
