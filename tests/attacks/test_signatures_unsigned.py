"""What nobody has signed: headers that are slipped into a signed request or URL on its way."""

import pytest

SLIPPED = [
    ("x-amz-copy-source", "/data/slipped/secret"),
    ("x-amz-acl", "public-read"),
    ("x-amz-grant-read", 'uri="all"'),
    ("x-amz-tagging", "a=b"),
    ("x-amz-object-lock-mode", "COMPLIANCE"),
    ("x-amz-object-lock-legal-hold", "ON"),
    ("x-amz-bypass-governance-retention", "true"),
    ("x-amz-server-side-encryption", "aws:kms"),
    ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
    ("x-amz-storage-class", "GLACIER"),
    ("x-amz-website-redirect-location", "http://evil.test/"),
    ("x-amz-meta-a", "1"),
    ("X-AMZ-ACL", "public-read"),
    ("x-amz-security-token", "t"),
    ("x-amz-mfa", "1 2"),
    ("x-amz-expected-bucket-owner", "1"),
    ("x-amz-decoded-content-length", "0"),
    ("x-amz-trailer", "x-amz-checksum-crc32"),
    ("x-amz-sdk-checksum-algorithm", "CRC32"),
    ("x-amz-checksum-crc32", "AAAAAA=="),
    ("x-amz-if-match-size", "1"),
    ("x-amz-source-expected-bucket-owner", "1"),
]


@pytest.fixture
def target(gateway):
    assert gateway.call("PUT", "/data/slipped/secret", body=b"hush").status == 200
    assert gateway.call("PUT", "/data/slipped/object", body=b"plain").status == 200
    return "/data/slipped/object"


@pytest.mark.parametrize("name,value", SLIPPED, ids=[name for name, _ in SLIPPED])
def test_a_slipped_header_is_refused(gateway, target, name, value):
    for method in ("PUT", "GET", "DELETE"):
        for request in (gateway.signed(method, target), gateway.presigned(method, target)):
            answer = gateway.send(request.add((name, value)))
            assert answer.verdict == "403 AccessDenied", (method, request.target, answer)
            assert name.lower().encode() in answer.body
    assert gateway.call("GET", target).body == b"plain"


@pytest.mark.parametrize("form", ["tab", "case", "value_twice", "obs_text"])
def test_odd_forms_of_a_slipped_header_are_refused(gateway, target, form):
    odd = {
        "tab": ("x-amz-copy-source", "\t/data/slipped/secret"),
        "case": ("X-aMz-CoPy-sOuRcE", "/data/slipped/secret"),
        "value_twice": ("x-amz-copy-source", "/data/slipped/secret\r\nx-amz-copy-source: /data/slipped/object"),
        "obs_text": ("x-amz-copy-source", "/data/slipped/secret\udcff"),
    }[form]
    for request in (gateway.signed("PUT", target), gateway.presigned("PUT", target)):
        assert gateway.send(request.add(odd)).status in (400, 403)
    assert gateway.call("GET", target).body == b"plain"


def test_a_signed_header_is_not_given_twice(gateway, target):
    """One that was signed and one that was not: which is obeyed?"""
    signed = gateway.signed("PUT", target, headers={"x-amz-copy-source": "/data/slipped/object", "x-amz-metadata-directive": "REPLACE"})
    for added in (
        signed.add(("x-amz-copy-source", "/data/slipped/secret")),
        type(signed)(signed.method, signed.target, [("x-amz-copy-source", "/data/slipped/secret")] + signed.headers, b""),
    ):
        assert gateway.send(added).status in (400, 403)
    assert gateway.call("GET", target).body == b"plain"


def test_slipped_parameters_are_refused(gateway, target):
    for name in (
        "acl",
        "tagging",
        "retention",
        "legal-hold",
        "versionId=null",
        "partNumber=1",
        "response-content-type=text/html",
        "uploads",
        "torrent",
    ):
        for method in ("GET", "PUT", "DELETE"):
            by_url = gateway.presigned(method, target)
            by_url.target += f"&{name}"
            by_header = gateway.signed(method, target)
            by_header.target += f"?{name}"
            for request in (by_url, by_header):
                assert gateway.send(request).status == 403, (method, name)
    assert gateway.call("GET", target).body == b"plain"


def test_a_url_for_reading_does_not_write(gateway, target):
    url = gateway.presigned("GET", target)
    for method in ("PUT", "DELETE", "POST", "HEAD"):
        request = type(url)(method, url.target, url.headers + [("content-length", "6")], b"forged")
        assert gateway.send(request).status in (400, 403), method
    assert gateway.call("GET", target).body == b"plain"
