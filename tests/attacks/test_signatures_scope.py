"""Signatures that are none for this request: other scopes, two of them, other hosts, other versions, other times."""

import base64
import hashlib
import hmac
import time
from datetime import datetime, timedelta, timezone

import pytest
import sigv4
from http2 import Http2
from lines import Peer, Signed, signer
from processes import OWNER

OBJECT = "/data/scope/object"


@pytest.fixture(autouse=True)
def stored(gateway):
    assert gateway.call("PUT", OBJECT, body=b"plain").status == 200
    yield
    assert gateway.call("GET", OBJECT).body == b"plain"


def shifted(seconds: float) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


@pytest.mark.parametrize("service", ["sts", "s3express", "iam", "S3", "s3-object-lambda", "s3 ", ""])
def test_a_scope_of_another_service_opens_nothing(gateway, service):
    for request in (gateway.signed("GET", OBJECT, service=service), gateway.presigned("GET", OBJECT, service=service)):
        assert gateway.send(request).status in (400, 403)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("/us-east-1/", "/eu-west-1/"),
        lambda text: text.replace("aws4_request", "aws4_reques"),
        lambda text: text.replace("/s3/", "/s3/s3/"),
        lambda text: text.replace("/us-east-1/", "//"),
        lambda text: text.replace("/s3/", "/"),
    ],
    ids=["region", "terminal", "longer", "empty", "shorter"],
)
def test_a_scope_that_was_changed_opens_nothing(gateway, change):
    by_header = gateway.signed("GET", OBJECT)
    by_url = gateway.presigned("GET", OBJECT)
    authorization = dict(by_header.headers)["Authorization"]
    assert gateway.send(by_header.replace("authorization", change(authorization))).status in (400, 403)
    by_url.target = change(by_url.target.replace("%2F", "/")).replace("/us-", "%2Fus-")
    assert gateway.send(by_url).status in (400, 403)


@pytest.mark.parametrize("days", [-1, 1, -365])
def test_a_scope_of_another_day_opens_nothing(gateway, days):
    """A key that leaked for a day is no good on another: the date of the scope is the request's."""
    now, other = datetime.now(timezone.utc), shifted(days * 86400)
    made = signer()
    head = {"host": gateway.host, "x-amz-date": made.stamp, "x-amz-content-sha256": sigv4.UNSIGNED}
    names, lines = ";".join(sorted(head)), "".join(f"{name}:{head[name]}\n" for name in sorted(head))
    canonical = "\n".join(["GET", OBJECT, "", lines, names, sigv4.UNSIGNED])
    scope = f"{other:%Y%m%d}/us-east-1/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", f"{now:%Y%m%dT%H%M%SZ}", scope, sigv4.sha256(canonical.encode())])
    signature = sigv4.hmac_sha256(signer(now=other).key(), to_sign).hex()
    head["authorization"] = f"AWS4-HMAC-SHA256 Credential={OWNER.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    assert gateway.send(Signed("GET", OBJECT, list(head.items()))).status in (400, 403)


@pytest.mark.parametrize(
    "name",
    [
        "X-Amz-Signature",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Algorithm",
        "x-amz-signature",
        "%58-Amz-Expires",
        "X-Amz-Expire%73",
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_doubled_parameter_is_refused(gateway, name, place):
    url = gateway.presigned("GET", OBJECT)
    path, query = url.target.split("?")
    plain = name.replace("%58", "X").replace("%73", "s")
    value = next((pair.split("=")[1] for pair in query.split("&") if pair.lower().startswith(plain.lower() + "=")), "1")
    for doubled in (value, "1", ""):
        pair = f"{name}={doubled}"
        url.target = f"{path}?{pair}&{query}" if place == "before" else f"{path}?{query}&{pair}"
        assert gateway.send(url).status in (400, 403), url.target


def test_a_second_signature_is_refused(gateway):
    by_header, by_url = gateway.signed("GET", OBJECT), gateway.presigned("GET", OBJECT)
    forged = (
        "authorization",
        f"AWS4-HMAC-SHA256 Credential={OWNER.access}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature={'0' * 64}",
    )
    v2 = ("authorization", f"AWS {OWNER.access}:c2lnbmF0dXJl")
    for second in (forged, v2, ("authorization", "Bearer x"), ("authorization", "")):
        assert gateway.send(by_header.add(second)).status in (400, 403)
        assert gateway.send(type(by_header)("GET", by_header.target, [second] + by_header.headers)).status in (400, 403)
        assert gateway.send(by_url.add(second)).status in (400, 403)
    both = Signed("GET", by_url.target, by_header.headers)
    assert gateway.send(both).status in (400, 403)


def test_another_host_is_refused(gateway):
    """A request that was signed for one name, sent under another; a bucket in the host's name counts as the path."""
    for host in ("data.s3.attacked.test", "s3.attacked.test", "127.0.0.1", "evil.test"):
        for request in (gateway.signed("GET", OBJECT), gateway.presigned("GET", OBJECT)):
            assert gateway.send(request.replace("host", host)).status in (400, 403)
            assert gateway.send(request.add(("host", host))).status in (400, 403)
            assert gateway.send(request.without("host")).status in (400, 403)
            absolute = Signed("GET", f"http://{host}{request.target}", request.headers)
            assert gateway.send(absolute).status in (400, 403)


def test_host_and_authority_are_one_over_http2(gateway):
    other = "data.s3.attacked.test"
    for request in (gateway.signed("GET", OBJECT), gateway.presigned("GET", OBJECT)):
        with gateway.line() as line:
            assert Http2(line).send(request, gateway.host).body == b"plain"
        for authority, more in (
            (other, [("host", gateway.host)]),
            (gateway.host, [("host", other)]),
            (other, []),
            (gateway.host, [("host", gateway.host), ("host", other)]),
            ("", [("host", other)]),
        ):
            with gateway.line() as line:
                answer = Http2(line).send(request, authority, *more)
                assert answer.status in (0, 400, 403), (authority, more, answer)


def test_pseudo_headers_are_given_once_over_http2(gateway):
    request = gateway.signed("GET", OBJECT)
    headers = [(name.lower(), value) for name, value in request.headers if name.lower() != "host"]
    for pseudo in ([(":path", OBJECT), (":path", "/data/scope/other")], [(":method", "DELETE")], [(":authority", "evil.test")]):
        with gateway.line() as line:
            http2 = Http2(line)
            whole = [(":method", "GET"), (":scheme", "http"), (":path", OBJECT), (":authority", gateway.host)] + pseudo
            stream = http2.begin(whole + headers)
            assert http2.read_answer(stream).status in (0, 400, 403)


def v2_url(method: str, expires: int) -> str:
    text = f"{method}\n\n\n{expires}\n{OBJECT}"
    signature = base64.b64encode(hmac.new(OWNER.secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
    return signature.replace("+", "%2B").replace("=", "%3D").replace("/", "%2F")


@pytest.mark.parametrize(
    "names",
    [
        ("AWSAccessKeyId", "Expires", "Signature"),
        ("AWSAccessKey%49d", "Expires", "%53ignature"),
        ("%41%57%53AccessKeyId", "%45xpires", "S%69gnature"),
        ("awsaccesskeyid", "expires", "signature"),
    ],
)
def test_version_2_in_a_url_is_off_whatever_its_names(gateway, names):
    expires = int(time.time()) + 300
    key, until, signature = names
    target = f"{OBJECT}?{key}={OWNER.access}&{until}={expires}&{signature}={v2_url('GET', expires)}"
    assert gateway.send(Signed("GET", target, [("host", gateway.host)])).status in (400, 403)


@pytest.mark.parametrize("scheme", ["AWS", "aws", "AWS ", " AWS", "\tAWS"])
def test_version_2_in_a_header_is_off(gateway, scheme):
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    text = f"GET\n\n\n{date}\n{OBJECT}"
    signature = base64.b64encode(hmac.new(OWNER.secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
    headers = [("host", gateway.host), ("date", date), ("authorization", f"{scheme} {OWNER.access}:{signature}")]
    assert gateway.send(Signed("GET", OBJECT, headers)).status in (400, 403)


@pytest.mark.parametrize(
    "expires,age", [(1, 60), (604800, 604900), (604801, 0), (10**12, 0), (-1, 0), (0, 5), (300, -1200), ("3e2", 0), ("٣٠٠", 0), ("", 0)]
)
def test_a_url_out_of_its_time_is_refused(gateway, expires, age):
    assert gateway.send(gateway.presigned("GET", OBJECT, expires=expires, now=shifted(-age))).status in (400, 403)


@pytest.mark.parametrize("skew", [-1000, 1000, -90000, 90000])
def test_a_request_out_of_its_time_is_refused(gateway, skew):
    assert gateway.call("GET", OBJECT, now=shifted(skew)).status in (400, 403)


def test_a_replay_within_its_time_does_only_what_was_signed(gateway):
    """SigV4 allows it; what counts is that the replayer can change nothing. After the time it is refused, as above."""
    put = gateway.signed("PUT", "/data/scope/replayed", body=b"one")
    assert gateway.send(put).status == 200
    assert gateway.call("PUT", "/data/scope/replayed", body=b"two").status == 200
    for changed in (
        Signed("PUT", put.target, put.headers, b"won"),
        Signed("PUT", put.target + "?x", put.headers, b"one"),
        Signed("DELETE", put.target, put.headers, b"one"),
        Signed("PUT", "/data/scope/object", put.headers, b"one"),
    ):
        assert gateway.send(changed).status in (400, 403)
    assert gateway.call("GET", "/data/scope/replayed").body == b"two"


def test_a_replay_at_another_endpoint_is_refused(gateway, cluster):
    """The host is signed: what one gateway was sent is no good at another one."""
    other = Peer(cluster.shop.port)
    for request in (gateway.signed("GET", OBJECT), gateway.presigned("GET", OBJECT)):
        assert other.send(request.replace("host", other.host)).status in (400, 403)


def test_a_replay_elsewhere_under_the_first_ones_name_is_refused(gateway, cluster):
    """The other one has a list of its own names."""
    other = Peer(cluster.shop.port)
    other.call("PUT", OBJECT, body=b"other")
    answer = other.send(gateway.signed("GET", OBJECT))
    assert answer.status in (400, 403) and b"own_hosts" in answer.body
    assert other.call("GET", OBJECT).body == b"other"


def test_keys_that_nobody_has_open_nothing(gateway):
    for access, secret in (
        ("AKNOBODY", OWNER.secret),
        (OWNER.access, ""),
        (OWNER.access, "wrong"),
        ("", ""),
        (OWNER.access.lower(), OWNER.secret),
        (OWNER.access + " ", OWNER.secret),
        ("*", "x"),
        (OWNER.access, OWNER.secret + "\n"),
    ):
        stranger = gateway.by(type(OWNER)(access, secret))
        for request in (stranger.signed("GET", OBJECT), stranger.presigned("GET", OBJECT)):
            assert gateway.send(request).status in (400, 403), (access, secret)
