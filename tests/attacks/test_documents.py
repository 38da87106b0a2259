"""Documents and bodies: bombs of XML, huge ones, and promises about bodies that do not hold. Nothing of them is stored or obeyed."""

import base64
import hashlib
import zlib

import pytest
from chunked import FORMS, SIGNED, SIGNED_TRAILER, Upload
from lines import Line
from processes import BODIES, MIB, metric

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10)) + "]>"
)
BOMBS = {
    "entities": LAUGHS + "<{0}><Object><Key>&l9;</Key></Object></{0}>",
    "quadratic": f'<!DOCTYPE a [<!ENTITY x "{"x" * 50_000}">]><{{0}}>' + "&x;" * 2000 + "</{0}>",
    "file": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><{0}><Object><Key>&x;</Key></Object></{0}>',
    "net": '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><{0}><Object><Key>a</Key></Object></{0}>',
    "parameter": '<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x">%x;]><{0}></{0}>',
    "deep": "<{0}>" + "<a>" * 200_000,
    "deep_closed": "<{0}>" + "<a>" * 100_000 + "</a>" * 100_000 + "</{0}>",
    "attributes": "<{0} " + " ".join(f'a{n}="b"' for n in range(50_000)) + "></{0}>",
    "one_text": "<{0}>" + "a" * 3_000_000 + "</{0}>",
    "comments": "<{0}>" + "<!--a-->" * 300_000 + "</{0}>",
    "numbers": "<{0}>" + "&#x41;" * 500_000 + "</{0}>",
    "instructions": "<?a b?>" * 300_000 + "<{0}/>",
    "not_text": "<{0}>\udcff\udcfe</{0}>",
    "utf16": "\ufeff<{0}/>",
    "nothing": "",
    "two_roots": "<{0}></{0}><{0}></{0}>",
    "unended": "<{0}><Object>",
    "cdata": "<{0}><![CDATA[" + "]]" * 500_000,
    "xinclude": '<{0} xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file:///etc/passwd" parse="text"/></{0}>',
}
PLACES = {
    "batch": ("POST", "/data", [("delete", "")], "Delete"),
    "complete": ("POST", "/data/documents/up", [("uploadId", "u")], "CompleteMultipartUpload"),
    "cors": ("PUT", "/asked", [("cors", "")], "CORSConfiguration"),
    "select": ("POST", "/asked/k", [("select", ""), ("select-type", "2")], "SelectObjectContentRequest"),
    "tagging": ("PUT", "/asked/k", [("tagging", "")], "Tagging"),
    "lifecycle": ("PUT", "/asked", [("lifecycle", "")], "LifecycleConfiguration"),
}


def md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body).digest()).decode()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_harms_nobody(cluster, gateway, honest, store, bomb):
    assert gateway.call("PUT", "/data/documents/kept", body=b"kept").status == 200
    for method, path, query, root in PLACES.values():
        body = BOMBS[bomb].format(root) if "{0}" in BOMBS[bomb] else BOMBS[bomb]
        body = body.encode("utf-16" if bomb == "utf16" else "utf-8", "surrogateescape")
        answer = gateway.call(method, path, query=query, body=body, headers={"content-md5": md5(body)})
        assert answer.status in (400, 404, 413, 501) or answer.status < 300, (path, answer)
        assert b"root:" not in answer.body and len(answer.body) < 4 * MIB
    honest.await_rounds(1)
    assert store.call("GET", "/data/documents/kept").body == b"kept"


@pytest.mark.parametrize("place", PLACES)
def test_a_document_beyond_the_bound_is_refused_unread(gateway, place):
    method, path, query, root = PLACES[place]
    body = b"<%s>" % root.encode() + b" " * (5 * MIB) + b"</%s>" % root.encode()
    for announced in (len(body), 10**15):
        request = gateway.signed(method, path, query=query, payload="UNSIGNED-PAYLOAD", headers={"content-length": str(announced)})
        with gateway.line() as line:
            line.say(request.wire() + body[: 5 * MIB])
            assert line.read_answer().status in (0, 400, 411, 413, 503), place


def test_documents_without_a_length_are_bounded(gateway):
    for method, path, query, _ in PLACES.values():
        request = gateway.signed(method, path, query=query, payload="UNSIGNED-PAYLOAD", framed=True)
        with gateway.line() as line:
            line.say(request.wire()[:-2] + b"transfer-encoding: chunked\r\n\r\n")
            for _ in range(100):
                if not line.say(b"10000\r\n" + b" " * 65536 + b"\r\n"):
                    break
            assert line.read_answer().status in (0, 400, 411, 413, 503)


def test_many_huge_documents_share_one_bound(cluster, gateway, honest):
    """Each announces 4 MiB and sends most of it: six of them are within the bound, and more are refused (test_slow)."""
    held: list[Line] = []
    for _ in range(6):
        line = gateway.line()
        line.socket.settimeout(1)
        held.append(line)
        line.say(
            gateway.signed(
                "POST", "/data", query=[("delete", "")], payload="UNSIGNED-PAYLOAD", headers={"content-length": str(4 * MIB)}
            ).wire()
            + b"<Delete>"
            + b" " * (3 * MIB)
        )
    assert metric(cluster.gateway.admin, "verbs3_gateway_body_memory_bytes") <= BODIES
    for line in held:
        line.close()
    honest.await_rounds(2)


def test_a_batch_of_too_many_keys_deletes_none(gateway, store):
    gateway.call("PUT", "/data/documents/kept", body=b"kept")
    body = b"<Delete>" + b"<Object><Key>documents/kept</Key></Object>" * 5000 + b"</Delete>"
    assert gateway.call("POST", "/data", query=[("delete", "")], body=body, headers={"content-md5": md5(body)}).status == 400
    assert store.call("HEAD", "/data/documents/kept").status == 200


DATA = b"the body that was promised"
OTHER = b"the body that was not said"
WRONG = {
    "md5": {"content-md5": md5(OTHER)},
    "md5_short": {"content-md5": "AAAA"},
    "crc32": {"x-amz-checksum-crc32": base64.b64encode(zlib.crc32(OTHER).to_bytes(4, "big")).decode()},
    "sha1": {"x-amz-checksum-sha1": base64.b64encode(hashlib.sha1(OTHER).digest()).decode()},
    "sha256": {"x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(OTHER).digest()).decode()},
    "crc32_and_sha256": {
        "x-amz-checksum-crc32": base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode(),
        "x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(OTHER).digest()).decode(),
    },
    "no_base64": {"x-amz-checksum-crc32": "!!!!"},
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("payload", [None, "UNSIGNED-PAYLOAD"], ids=["signed", "unsigned"])
def test_a_wrong_promise_stores_nothing(gateway, store, wrong, payload):
    gateway.call("DELETE", "/data/documents/promised")
    assert gateway.call("PUT", "/data/documents/promised", body=DATA, headers=WRONG[wrong], payload=payload).status == 400
    assert store.call("HEAD", "/data/documents/promised").status == 404


def test_another_body_than_was_signed_stores_nothing(gateway, store):
    request = gateway.signed("PUT", "/data/documents/promised", body=DATA)
    for body in (OTHER, DATA[:-1], DATA + b"x", b""):
        changed = type(request)(request.method, request.target, request.headers, body).replace("content-length", str(len(body)))
        assert gateway.send(changed).status in (400, 403)
    assert store.call("HEAD", "/data/documents/promised").status == 404


BENT = {
    "first": lambda index, signature: "0" * 64 if index == 0 else signature,
    "last": lambda index, signature: "f" * 64 if index == 3 else signature,
    "trailer": lambda index, signature: "0" * 64 if index == -1 else signature,
    "short": lambda index, signature: signature[:-2],
    "empty": lambda index, signature: "",
}


@pytest.mark.parametrize("form", [SIGNED, SIGNED_TRAILER])
@pytest.mark.parametrize("bent", BENT)
def test_a_chunk_that_was_changed_stores_nothing(gateway, store, form, bent):
    if bent == "trailer" and form == SIGNED:
        pytest.skip("this form has no trailer")
    trailers = (
        [("x-amz-checksum-crc32", base64.b64encode(zlib.crc32(DATA * 5000).to_bytes(4, "big")).decode())] if form == SIGNED_TRAILER else []
    )
    send_upload(gateway, Upload(DATA * 5000, form, trailers, chunk_bytes=50_000, bend=BENT[bent]))
    assert store.call("HEAD", "/data/documents/chunked").status == 404


@pytest.mark.parametrize("form", FORMS)
def test_framing_that_lies_stores_nothing(gateway, store, form):
    trailers = [] if form == SIGNED else [("x-amz-checksum-crc32", base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode())]
    for change in (
        {"decoded_length": len(DATA) - 1},
        {"decoded_length": len(DATA) + 1},
        {"decoded_length": 0},
        {"decoded_length": 2**63},
        {"unfinished": True},
    ):
        send_upload(gateway, Upload(DATA, form, trailers, **change))
        assert store.call("HEAD", "/data/documents/chunked").status == 404, change
    if form != SIGNED:
        for wrong in (
            [("x-amz-checksum-crc32", "AAAAAA==")],
            [("x-amz-checksum-sha256", base64.b64encode(hashlib.sha256(OTHER).digest()).decode())],
            [("x-amz-acl", "public-read")],
            trailers + [("x-amz-acl", "public-read")],
            trailers + [("content-length", "0")],
        ):
            send_upload(gateway, Upload(DATA, form, wrong))
            assert store.call("HEAD", "/data/documents/chunked").status == 404, wrong


def send_upload(gateway, upload: Upload):
    """As the S3 suite's wire does it, without a record."""
    from sigv4 import uri
    from lines import Signed, signer

    by, path = signer(gateway.key), uri("/data/documents/chunked")
    head = {"host": gateway.host} | upload.headers() | {"content-length": str(len(upload.frames(by, "0" * 64)))}
    signed = by.authorize("PUT", path, [], head, upload.form)
    body = upload.frames(by, signed["Authorization"].rsplit("=", 1)[1])
    request = Signed("PUT", path, list(signed.items()), body)
    with gateway.line() as line:
        line.socket.settimeout(20)
        line.say(request.wire())
        if upload.unfinished:
            import socket

            line.socket.shutdown(socket.SHUT_WR)
        answer = line.read_answer()
    assert answer.status in (0, 400, 403, 411, 413, 501), answer


def test_a_part_that_does_not_hold_its_promise_is_no_part(gateway):
    begun = gateway.call("POST", "/data/documents/up", query=[("uploads", "")])
    upload = begun.body.split(b"<UploadId>")[1].split(b"<")[0].decode()
    query = [("partNumber", "1"), ("uploadId", upload)]
    assert gateway.call("PUT", "/data/documents/up", query=query, body=DATA, headers=WRONG["crc32"]).status == 400
    assert gateway.call("PUT", "/data/documents/up", query=query, body=DATA, headers=WRONG["md5"]).status == 400
    assert b"<Part>" not in gateway.call("GET", "/data/documents/up", query=[("uploadId", upload)]).body
    body = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>"
    assert gateway.call("POST", "/data/documents/up", query=[("uploadId", upload)], body=body).status == 400
    assert gateway.call("DELETE", "/data/documents/up", query=[("uploadId", upload)]).status == 204
