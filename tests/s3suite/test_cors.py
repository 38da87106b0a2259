"""Pages from other origins: preflights (which nobody signs) and the headers of the answers that follow, by the bucket's CORS configuration."""

import pytest

PAGE, OTHER = "https://page.example", "https://other.example"
RULES = [
    {"AllowedOrigins": [PAGE], "AllowedMethods": ["GET", "PUT"], "AllowedHeaders": ["x-amz-*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60},
    {"AllowedOrigins": ["https://*.sub.example"], "AllowedMethods": ["HEAD"]},
]

pytestmark = pytest.mark.needs("cors")


@pytest.fixture
def configured(s3, bucket):
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": RULES})
    s3.put_object(Bucket=bucket, Key="object", Body=b"x")
    return bucket


def preflight(raw, bucket, key="object", **headers):
    """An unsigned OPTIONS; ORIGIN, METHOD and HEADERS as a browser sends them."""
    names = {"origin": "origin", "method": "access-control-request-method", "headers": "access-control-request-headers"}
    return raw.send("OPTIONS", raw.path(bucket, key), {"host": raw.to.authority} | {names[name]: value for name, value in headers.items()})


@pytest.mark.parametrize("origin,method", [(PAGE, "GET"), (PAGE, "PUT"), ("https://a.sub.example", "HEAD")])
def test_an_allowed_preflight_says_so(raw, configured, expect, check, origin, method):
    answer = expect(preflight(raw, configured, origin=origin, method=method), 200)
    assert answer.body == b""
    check("origin", answer.header("access-control-allow-origin"), origin)
    check("method", method in (answer.header("access-control-allow-methods") or ""), True)


def test_a_preflight_names_what_may_be_sent_and_read(raw, configured, expect, check):
    answer = expect(preflight(raw, configured, origin=PAGE, method="PUT", headers="x-amz-date,x-amz-acl"), 200)
    allowed = {name.strip().lower() for name in (answer.header("access-control-allow-headers") or "").split(",")}
    check("headers", {"x-amz-date", "x-amz-acl"} <= allowed, True)
    check("exposed", (answer.header("access-control-expose-headers") or "").lower(), "etag")
    check("age", answer.header("access-control-max-age"), "60")


def test_a_preflight_for_a_key_that_is_not_there_is_answered(raw, configured, expect):
    expect(preflight(raw, configured, key="missing", origin=PAGE, method="GET"), 200)


@pytest.mark.parametrize("asked", [{"origin": OTHER, "method": "GET"}, {"origin": PAGE, "method": "DELETE"},
                                   {"origin": PAGE, "method": "GET", "headers": "range"}], ids=["origin", "method", "header"])
def test_a_preflight_that_no_rule_allows_is_forbidden(raw, configured, expect, check, asked):
    answer = expect(preflight(raw, configured, **asked), 403, "AccessForbidden")
    check("origin", answer.header("access-control-allow-origin"), None)


def test_a_preflight_of_a_bucket_without_rules_is_forbidden(raw, bucket, expect):
    expect(preflight(raw, bucket, origin=PAGE, method="GET"), 403, "AccessForbidden")


def test_a_preflight_without_an_origin_is_a_bad_request(raw, configured, expect):
    expect(preflight(raw, configured, method="GET"), 400, "BadRequest")


def test_a_preflight_without_a_method_is_a_bad_request(raw, configured, expect):
    expect(preflight(raw, configured, origin=PAGE), 400, "BadRequest")


def test_a_preflight_of_a_missing_bucket_is_no_such_bucket(raw, configured, expect):
    expect(preflight(raw, configured + "-missing", origin=PAGE, method="GET"), 404, "NoSuchBucket")


@pytest.mark.parametrize("method,key,status", [("GET", "object", 200), ("GET", "missing", 404), ("PUT", "new", 200)])
def test_an_answer_says_which_page_may_read_it(raw, configured, check, method, key, status):
    answer = raw.call(method, configured, key, headers={"origin": PAGE})
    check("status", answer.status, status)
    check("origin", answer.header("access-control-allow-origin"), PAGE)
    check("exposed", (answer.header("access-control-expose-headers") or "").lower(), "etag")


@pytest.mark.parametrize("method,headers", [("GET", {"origin": OTHER}), ("GET", {}), ("DELETE", {"origin": PAGE})], ids=["origin", "none", "method"])
def test_an_answer_that_no_rule_allows_says_nothing(raw, configured, check, method, headers):
    answer = raw.call(method, configured, "object", headers=headers)
    check("status", answer.status, {200, 204})
    check("origin", answer.header("access-control-allow-origin"), None)


def test_a_range_of_a_cached_object_is_allowed_alike(rawr, configured, check):
    """Written through one endpoint, read twice through another: hits have the headers too."""
    for _ in range(2):
        answer = rawr.call("GET", configured, "object", headers={"origin": PAGE, "range": "bytes=0-0"})
        check("status", answer.status, 206)
        check("origin", answer.header("access-control-allow-origin"), PAGE)


def test_a_configuration_that_goes_is_gone(s3, raw, configured, check):
    check("before", preflight(raw, configured, origin=PAGE, method="GET").status, 200)
    s3.delete_bucket_cors(Bucket=configured)
    check("after", preflight(raw, configured, origin=PAGE, method="GET").status, 403)
