"""How a request names its target: path style, virtual-host style, absolute form; and HTTP's own corners."""

import os
import socket

import pytest
from data import made

DATA = made(5000, "addressing")


@pytest.fixture
def domain():
    found = os.environ.get("S3_VHOST_DOMAIN")
    if not found:
        pytest.skip("S3_VHOST_DOMAIN is not set: the service has no virtual-host names")
    return found


@pytest.fixture
def stored(s3, bucket):
    s3.boto.put_object(Bucket=bucket, Key="dir/object", Body=DATA)
    return bucket


def test_a_virtual_host_names_the_bucket(rawr, stored, domain, expect):
    assert expect(rawr.call("GET", path="/dir/object", authority=f"{stored}.{domain}"), 200).body == DATA


def test_a_virtual_host_lists_its_bucket(rawr, stored, domain, expect):
    assert b"<Key>dir/object</Key>" in expect(rawr.call("GET", path="/", query=[("list-type", "2")], authority=f"{stored}.{domain}"), 200).body


def test_a_virtual_host_takes_writes(raw, s3r, stored, domain, expect):
    expect(raw.call("PUT", path="/new", authority=f"{stored}.{domain}", body=b"by host"), 200)
    assert s3r.get_object(Bucket=stored, Key="new").body == b"by host"
    expect(raw.call("DELETE", path="/new", authority=f"{stored}.{domain}"), 204)


def test_the_bare_domain_is_path_style(rawr, stored, domain, expect):
    assert expect(rawr.call("GET", stored, "dir/object", authority=domain), 200).body == DATA


def test_a_virtual_host_of_no_bucket_is_no_such_bucket(rawr, domain, expect):
    expect(rawr.call("GET", path="/key", authority=f"suite-no-such-bucket.{domain}"), 404, "NoSuchBucket")


def test_a_slash_after_the_bucket_is_the_bucket(rawr, stored, expect):
    expect(rawr.call("GET", path=f"/{stored}/", query=[("list-type", "2")]), 200)


def test_expect_100_continue(raw, s3r, stored, expect):
    """The body goes only after the interim answer, as boto3 and others do for every PUT."""
    headers = {"host": raw.to.authority, "content-length": str(len(DATA)), "expect": "100-continue"}
    signed = raw.signer().authorize("PUT", raw.path(stored, "expected"), [], {"host": raw.to.authority}, "UNSIGNED-PAYLOAD")
    head = f"PUT {raw.path(stored, 'expected')} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in (headers | signed).items()) + "\r\n"
    with socket.create_connection((raw.to.host, raw.to.port), timeout=20) as connection:
        connection.sendall(head.encode())
        interim = b""
        while not interim.endswith(b"\r\n\r\n"):
            piece = connection.recv(1)
            assert piece, f"closed after {interim!r}"
            interim += piece
        assert interim.startswith(b"HTTP/1.1 100")
        connection.sendall(DATA)
        expect(raw.receive("PUT", connection), 200)
    assert s3r.get_object(Bucket=stored, Key="expected").body == DATA


def test_one_connection_serves_many_requests(rawr, stored):
    with socket.create_connection((rawr.to.host, rawr.to.port), timeout=20) as connection:
        for first in range(0, 5000, 1000):
            headers = rawr.signer().authorize("GET", rawr.path(stored, "dir/object"), [],
                                              {"host": rawr.to.authority, "range": f"bytes={first}-{first + 999}"}, "UNSIGNED-PAYLOAD")
            head = f"GET {rawr.path(stored, 'dir/object')} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
            connection.sendall(head.encode())
            assert rawr.receive("GET", connection).body == DATA[first:first + 1000]


def test_http_1_0_gets_the_whole_body(rawr, stored):
    headers = rawr.signer().authorize("GET", rawr.path(stored, "dir/object"), [], {"host": rawr.to.authority}, "UNSIGNED-PAYLOAD")
    head = f"GET {rawr.path(stored, 'dir/object')} HTTP/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    with socket.create_connection((rawr.to.host, rawr.to.port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = rawr.receive("GET", connection)
    assert (answer.status, answer.body) == (200, DATA)
