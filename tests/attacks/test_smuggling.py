"""Requests that two readers could take differently: what follows the one must never be read as another, and never be obeyed."""

import pytest
from lines import Line, Peer

OBJECT = "/data/smuggling/object"


@pytest.fixture(autouse=True)
def stored(gateway):
    assert gateway.call("PUT", OBJECT, body=b"plain").status == 200
    yield
    assert gateway.call("GET", OBJECT).body == b"plain"


def smuggled(gateway: Peer) -> bytes:
    """A whole, signed request that deletes: if it is obeyed, its sender was believed to have sent two."""
    return gateway.signed("DELETE", OBJECT).wire()


def count_answers(line: Line, limit: int = 4) -> list[int]:
    found = []
    while len(found) < limit:
        answer = line.read_answer()
        if answer.status == 0:
            break
        found.append(answer.status)
        if answer.header("connection").lower() == "close":
            break
    return found


FRAMINGS = {
    "length_and_chunked": "content-length: 5\r\ntransfer-encoding: chunked",
    "chunked_and_length": "transfer-encoding: chunked\r\ncontent-length: 5",
    "chunked_tab": "transfer-encoding:\tchunked\r\ncontent-length: 5",
    "chunked_space": "transfer-encoding : chunked\r\ncontent-length: 5",
    "chunked_vertical_tab": "transfer-encoding: \x0bchunked\r\ncontent-length: 5",
    "x_chunked": "transfer-encoding: xchunked\r\ncontent-length: 5",
    "chunked_identity": "transfer-encoding: chunked, identity\r\ncontent-length: 5",
    "chunked_twice": "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
    "chunked_gzip": "transfer-encoding: gzip, chunked\r\ncontent-length: 5",
    "two_lengths": "content-length: 5\r\ncontent-length: 0",
    "same_lengths": "content-length: 5\r\ncontent-length: 6",
    "length_list": "content-length: 5, 0",
    "length_plus": "content-length: +5",
    "length_minus": "content-length: -1",
    "length_hex": "content-length: 0x5",
    "length_space": "content-length: 5 0",
    "length_huge": "content-length: 18446744073709551621",
    "length_empty": "content-length: ",
    "length_zero_padded": "content-length: 00000000000000000000000000000000000000000x",
    "folded": "content-length: 5\r\n\tx: y\r\ntransfer-encoding:\r\n chunked",
    "bare_lf": "x: y\ncontent-length: 0\ntransfer-encoding: chunked",
    "bare_cr": "x: y\rtransfer-encoding: chunked\r\ncontent-length: 5",
    "nul": "x: y\x00z\r\ncontent-length: 5",
    "no_colon": "content-length 5",
    "space_before": " content-length: 5",
    "null_name": "content-length\x00: 5",
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_ambiguous_length_ends_the_connection(gateway, framing):
    """What follows is a chunked body's end to one reader, and a second request to the other."""
    signed = gateway.signed("PUT", "/data/smuggling/other", payload="UNSIGNED-PAYLOAD", framed=True)
    head = signed.wire()[:-2] + FRAMINGS[framing].encode("latin-1") + b"\r\n\r\n"
    with gateway.line() as line:
        line.say(head + b"0\r\n\r\n" + smuggled(gateway))
        statuses = count_answers(line)
    # One answer and the end; or two, where both lengths agree that there are two requests, and then none of them may have been the smuggled one.
    assert 204 not in statuses, (framing, statuses)
    assert len(statuses) <= 1 or statuses[0] >= 400, (framing, statuses)


CHUNKS = {
    "extension": b"5;a=b\r\nplain\r\n0\r\n\r\n",
    "extension_with_lf": b"5;a=b\nplain\r\n0\r\n\r\n",
    "extension_long": b"5;" + b"a" * 100_000 + b"\r\nplain\r\n0\r\n\r\n",
    "hex": b"0x5\r\nplain\r\n0\r\n\r\n",
    "plus": b"+5\r\nplain\r\n0\r\n\r\n",
    "minus": b"-5\r\nplain\r\n0\r\n\r\n",
    "overflow": b"10000000000000005\r\nplain\r\n0\r\n\r\n",
    "overflow_wide": b"FFFFFFFFFFFFFFFFFFFF\r\nplain\r\n0\r\n\r\n",
    "bare_lf": b"5\nplain\n0\n\n",
    "no_crlf": b"5\r\nplain0\r\n\r\n",
    "wrong_end": b"5\r\nplainXX0\r\n\r\n",
    "empty": b"\r\n\r\n",
    "spaces": b"5 \r\nplain\r\n0\r\n\r\n",
    "trailers": b"5\r\nplain\r\n0\r\nhost: evil\r\nx-amz-acl: public-read\r\ncontent-length: 99\r\n\r\n",
    "many_trailers": b"5\r\nplain\r\n0\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
}


@pytest.mark.parametrize("form", CHUNKS)
def test_odd_chunks_are_one_body_or_none(gateway, store, form):
    signed = gateway.signed("PUT", "/data/smuggling/chunked", payload="UNSIGNED-PAYLOAD", framed=True)
    with gateway.line() as line:
        line.say(signed.wire()[:-2] + b"transfer-encoding: chunked\r\n\r\n" + CHUNKS[form])
        statuses = count_answers(line, 1)
    kept = store.call("GET", "/data/smuggling/chunked")
    assert kept.status == 404 or kept.body == b"plain", kept
    assert statuses in ([], [200]) or statuses[0] >= 400
    gateway.call("DELETE", "/data/smuggling/chunked")


def test_what_follows_a_refusal_is_judged_by_itself(gateway):
    """Unsigned requests in a row, then signed ones: none is answered by the rights of another."""
    unsigned = f"GET {OBJECT} HTTP/1.1\r\nhost: {gateway.host}\r\n\r\n".encode()
    signed = gateway.signed("GET", OBJECT).wire()
    with gateway.line() as line:
        line.say(unsigned + signed + unsigned + signed + unsigned)
        statuses = [line.read_answer().status for _ in range(5)]
    assert statuses == [403, 200, 403, 200, 403]


def test_a_refused_body_is_not_read_as_a_request(gateway):
    """An upload that nobody has signed, whose body is a signed request to delete."""
    hidden = smuggled(gateway)
    for headers in (f"content-length: {len(hidden)}", f"expect: 100-continue\r\ncontent-length: {len(hidden)}"):
        with gateway.line() as line:
            line.say(f"PUT {OBJECT} HTTP/1.1\r\nhost: {gateway.host}\r\n{headers}\r\n\r\n".encode() + hidden)
            statuses = count_answers(line)
        assert statuses == [403], statuses


def test_a_cut_upload_is_not_followed_by_its_rest(gateway):
    """A wrong chunk signature ends the connection: what is left of the body is no request."""
    head = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": "5", "content-length": "2000"}
    signed = gateway.signed("PUT", "/data/smuggling/chunked", headers=head, payload="STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    with gateway.line() as line:
        line.say(signed.wire() + b"5;chunk-signature=" + b"0" * 64 + b"\r\nplain\r\n" + smuggled(gateway))
        statuses = count_answers(line)
    assert 204 not in statuses and len(statuses) <= 1, statuses


@pytest.mark.parametrize(
    "head",
    [
        b"x-a: " + b"a" * 20_000,
        b"".join(b"x-%d: b\r\n" % number for number in range(3000)) + b"x-last: y",
        b"a" * 20_000 + b": b",
        b"cookie: " + b"a=b; " * 5000,
    ],
)
def test_oversized_headers_are_refused(gateway, head):
    signed = gateway.signed("GET", OBJECT)
    with gateway.line() as line:
        line.say(signed.wire()[:-2] + head + b"\r\n\r\n" + smuggled(gateway))
        statuses = count_answers(line)
    assert statuses in ([], [400], [413], [431]), statuses


@pytest.mark.parametrize(
    "line_text",
    [
        b"GET " + b"/" + b"a" * 70_000 + b" HTTP/1.1",
        b"GET /data HTTP/1.1 x",
        b"GET  /data HTTP/1.1",
        b"GET\t/data\tHTTP/1.1",
        b"G\x00T /data HTTP/1.1",
        b"GET /data HTTP/9.9",
        b"GET /data",
        b"GET /da\x00ta HTTP/1.1",
        b"GET /da\x7fta HTTP/1.1",
        b"GET data HTTP/1.1",
        b"GET * HTTP/1.1",
        b"CONNECT evil.test:80 HTTP/1.1",
        b"\r\n\r\n\r\nGET / HTTP/1.1",
        b"GET http://evil.test/ HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"TRACE /data/x HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET /data#x HTTP/1.1",
    ],
)
def test_malformed_first_lines_open_nothing(gateway, line_text):
    with gateway.line() as line:
        line.say(line_text + b"\r\nhost: " + gateway.host.encode() + b"\r\nmax-forwards: 0\r\n\r\n")
        statuses = count_answers(line, 1)
    assert statuses == [] or statuses[0] in (400, 403, 405, 414, 431, 501, 505), statuses


def test_a_thousand_requests_at_once_over_one_connection(gateway):
    """Pipelined: they are answered in order, each by itself."""
    wire = b"".join(
        gateway.signed("GET", OBJECT).wire() if number % 2 else f"GET {OBJECT} HTTP/1.1\r\nhost: {gateway.host}\r\n\r\n".encode()
        for number in range(1000)
    )
    import threading

    with gateway.line() as line:
        threading.Thread(target=line.say, args=(wire,), daemon=True).start()
        statuses = [line.read_answer().status for _ in range(1000)]
    assert statuses == [403, 200] * 500


def test_upgrades_are_refused(gateway):
    for upgrade in ("h2c", "websocket", "TLS/1.2"):
        request = gateway.signed("GET", OBJECT).add(
            ("connection", "upgrade, http2-settings"), ("upgrade", upgrade), ("http2-settings", "AAMAAABkAAQAAP__")
        )
        assert gateway.send(request).status in (200, 400, 403, 501)


def test_hop_by_hop_names_do_not_unsign_headers(gateway):
    """Connection names what a proxy would drop: a signed header that it names still counts, an unsigned one is still refused."""
    request = gateway.signed("PUT", "/data/smuggling/other", headers={"x-amz-copy-source": OBJECT}).add(
        ("connection", "x-amz-copy-source, authorization, x-amz-date")
    )
    assert gateway.send(request).status in (200, 400)
    slipped = gateway.signed("PUT", "/data/smuggling/other").add(("connection", "x-amz-copy-source"), ("x-amz-copy-source", OBJECT))
    assert gateway.send(slipped).status == 403
    gateway.call("DELETE", "/data/smuggling/other")
