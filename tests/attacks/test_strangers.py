"""Strangers who hold things at a gateway: connections, handshakes, halves of requests, forms. Nothing that they send proves anything."""

import ssl
import threading
import time

import pytest
from http2 import CONTINUATION, HEADERS, PING, PREFACE, SETTINGS, Http2, frame
from lines import Line, Peer, await_all_ended, await_that, new_address, signed_form
from own_pauses import count_served
from processes import HONEST, MIB, PROOF_SECONDS, metric

# Of the deadlines: none of these cases asks how exact they are.
GENEROUS = 20 * PROOF_SECONDS
HEAD = b"GET /data/honest/1 HTTP/1.1\r\nhost: x\r\n"
OPENINGS = {
    "silence": b"",
    "a_byte": b"G",
    "half_a_line": b"GET /data/honest/1 HT",
    "half_a_head": HEAD,
    "half_a_preface": PREFACE[:12],
    "a_preface": PREFACE,
    "settings_alone": PREFACE + frame(SETTINGS, 0, 0),
    "headers_without_end": PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 1, 1, b"\x82"),
    "tls_where_none_is": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "huge_length": b"PUT /data/x HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999\r\n\r\n",
    "huge_form": b"POST /data HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=X\r\ncontent-length: 4000000\r\n\r\n--X\r\n",
    "endless_chunks": b"PUT /data/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
    "expects": b"PUT /data/x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5000000\r\n\r\n",
}
# What is said again and again, to seem alive.
RENEWALS = {
    "trickled_headers": (HEAD, b"x-a: b\r\n"),
    "pings": (PREFACE + frame(SETTINGS, 0, 0), frame(PING, 0, 0, b"12345678")),
    "settings": (PREFACE + frame(SETTINGS, 0, 0), frame(SETTINGS, 0, 0)),
    "trickled_line": (b"GET /", b"a"),
    "unsigned_requests": (b"", b"GET /data/honest/1 HTTP/1.1\r\nhost: x\r\n\r\n"),
    "preflights": (b"", b"OPTIONS /data/x HTTP/1.1\r\nhost: x\r\norigin: http://a\r\naccess-control-request-method: GET\r\n\r\n"),
    "trickled_form": (OPENINGS["huge_form"], b'Content-Disposition: form-data; name="key"\r\n'),
    "continuations": (PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 1, 1, b"\x82"), frame(CONTINUATION, 0, 1, b"")),
}


@pytest.fixture
def crowd(source):
    """crowd(port, count, opening): connections that say it; closed when the case ends."""
    held: list[Line] = []

    def make(port: int, count: int, opening: bytes, address: str = source, wrap=None) -> list[Line]:
        made = []
        for _ in range(count):
            line = Line(port, address, wrap)
            line.say(opening)
            made.append(line)
        held.extend(made)
        return made

    yield make
    for line in held:
        line.close()


def test_a_stranger_is_cut_whatever_it_says(cluster, honest, crowd):
    """All openings at once, twenty connections each."""
    lines = {name: crowd(cluster.gateway.port, 20, opening) for name, opening in OPENINGS.items()}
    honest.await_rounds(2)
    for name, left in lines.items():
        await_all_ended(left, GENEROUS, name)


def test_a_stranger_renews_nothing(cluster, honest, crowd):
    """All of them at once, until each was cut."""
    lines = {name: crowd(cluster.gateway.port, 5, opening) for name, (opening, _) in RENEWALS.items()}
    end = time.monotonic() + GENEROUS
    while any(lines.values()):
        for name, left in lines.items():
            lines[name] = [line for line in left if line.say(RENEWALS[name][1]) and not line.is_closed()]
        assert time.monotonic() < end, {name: len(left) for name, left in lines.items() if left}
        time.sleep(0.05)
    honest.await_rounds(2)


def test_tls_handshakes_that_never_end_are_cut(cluster, crowd):
    """No hello, half of one, a whole one and then nothing; and a finished handshake without a request."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    whole = outgoing.read()
    lines = []
    for opening in (b"", whole[:20], whole[:-1], whole, b"\x16\x03\x01\x40\x00", b"GET / HTTP/1.1\r\n\r\n"):
        lines += crowd(cluster.tls.port, 20, opening)
    finished = crowd(cluster.tls.port, 5, b"", wrap=lambda plain: context.wrap_socket(plain, server_hostname="localhost"))
    known = Peer(cluster.tls.port, wrap=lambda plain: context.wrap_socket(plain, server_hostname="localhost"))
    assert known.call("GET", "/data").status == 200
    await_all_ended(lines + finished, GENEROUS)
    assert known.call("GET", "/data").status == 200


def test_one_address_keeps_nobody_else_out(cluster, honest, crowd):
    """More connections than one address may have, and as many again."""
    lines = crowd(cluster.gateway.port, 1500, b"")
    assert metric(cluster.gateway.admin, "verbs3_gateway_connections_unproven") <= 320
    honest.await_rounds(3)
    await_all_ended(lines, GENEROUS)


@pytest.mark.crowd
def test_many_addresses_delay_newcomers_but_do_not_keep_them_out(cluster, honest, crowd):
    """More addresses than places would need: who tries again is let in once strangers are older than a second."""
    for _ in range(6):
        crowd(cluster.gateway.port, 200, HEAD, new_address())
    honest.await_rounds(3)
    assert metric(cluster.gateway.admin, "verbs3_gateway_connections") <= 1500


@pytest.mark.crowd
@pytest.mark.parametrize("addresses", [2, 3])
def test_few_addresses_that_come_again_and_again_keep_nobody_out(cluster, addresses):
    """One or two come anew all the time, so that no stranger of theirs is ever a second old; a third holds what it has."""
    over, holding = threading.Event(), []

    def come_again(address: str, anew: bool):
        lines: list[Line] = []
        while not over.is_set():
            if anew or len(lines) < 290:
                try:
                    lines += [Line(cluster.gateway.port, address) for _ in range(6)]
                except OSError:
                    pass
            while len(lines) > 600:
                lines.pop(0).close()
            over.wait(0.008)
        for line in lines:
            line.close()

    for number in range(addresses):
        holding.append(threading.Thread(target=come_again, args=(new_address(), number < 2)))
        holding[-1].start()
    try:
        await_that(
            lambda: metric(cluster.gateway.admin, "verbs3_gateway_connections_unproven") >= 500, "the attackers never had their connections"
        )
        newcomer = Peer(cluster.gateway.port, source=new_address())
        served = count_served(40, lambda: newcomer.call("GET", "/data/honest/1").status in (200, 404))
    finally:
        over.set()
        for thread in holding:
            thread.join()
    assert served >= 36, f"{served} of 40 newcomers were served"


def test_forms_of_a_few_addresses_keep_no_other_form_out(cluster, crowd):
    """Each has as many half forms as one address may have; together they hold all places of strangers' requests."""

    def hold_places() -> bool:
        """They are cut after a while, and come anew until they hold all places at one look."""
        for _ in range(4):
            crowd(cluster.gateway.port, 16, OPENINGS["huge_form"], new_address())
        return metric(cluster.gateway.admin, "verbs3_gateway_requests_unproven") >= 60

    await_that(hold_places, "the half forms hold no places")
    honest_form = Peer(cluster.gateway.port, HONEST, new_address())
    verdicts = []
    while "204" not in verdicts and len(verdicts) < 3:
        with honest_form.line() as line:
            line.say(signed_form(HONEST, honest_form.host, "forms/newcomer", body=b"h"))
            verdicts.append(line.read_answer().verdict)
        time.sleep(0.1)
    assert "204" in verdicts, verdicts


def test_unsigned_requests_take_no_place_of_known_ones(cluster, honest, crowd):
    form = OPENINGS["huge_form"] + b'Content-Disposition: form-data; name="key"\r\n\r\n'
    crowd(cluster.gateway.port, 100, form)
    assert metric(cluster.gateway.admin, "verbs3_gateway_form_bytes") == 0
    assert metric(cluster.gateway.admin, "verbs3_gateway_body_memory_bytes") <= 32 * MIB
    assert metric(cluster.gateway.admin, "verbs3_gateway_requests_unproven") <= 16
    honest.await_rounds(3)


def test_a_forms_fields_are_bounded_before_its_signature(cluster, honest, source):
    """Megabytes of fields, a field of megabytes, and a boundary that never comes."""
    head = b"POST /data HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=X\r\ncontent-length: 60000000\r\n\r\n"
    many = b"".join(b'--X\r\nContent-Disposition: form-data; name="a%d"\r\n\r\nb\r\n' % number for number in range(20000))
    for body in (
        many,
        b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"a" * MIB,
        b"a" * MIB,
        b"--X\r\n" + b"x: y\r\n" * 50000,
    ):
        with Line(cluster.gateway.port, source) as line:
            line.say(head + body)
            assert line.read_answer().status in (0, 400, 403, 413)
    honest.await_rounds(1)


def test_a_form_with_a_forged_signature_stores_nothing(cluster, gateway, store):
    def field(name, value):
        return f'--X\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'

    fields = {
        "key": "forged",
        "policy": "eyJleHBpcmF0aW9uIjoiMjA5OS0wMS0wMVQwMDowMDowMFoiLCJjb25kaXRpb25zIjpbXX0=",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "AKOWNER/20260101/us-east-1/s3/aws4_request",
        "x-amz-date": "20260101T000000Z",
        "x-amz-signature": "0" * 64,
    }
    for left_out in ("", "x-amz-signature", "policy", "x-amz-credential", "x-amz-algorithm"):
        body = "".join(field(name, value) for name, value in fields.items() if name != left_out) + field("file", "forged") + "--X--\r\n"
        with gateway.line() as line:
            form = f"content-type: multipart/form-data; boundary=X\r\ncontent-length: {len(body)}\r\n\r\n{body}"
            line.say(f"POST /data HTTP/1.1\r\nhost: {gateway.host}\r\n{form}".encode())
            assert line.read_answer().status in (400, 403), left_out
    assert store.call("HEAD", "/data/forged").status == 404


def flood_http2(port: int, source: str, seconds: float, kind: str):
    """One connection of HTTP/2 that is as expensive as it can be without a signature."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with Line(port, source) as line:
                http2 = Http2(line)
                while time.monotonic() < end and not line.is_closed():
                    line.buffer = b""
                    if kind == "resets":
                        stream = http2.h2.get_next_available_stream_id()
                        http2.h2.send_headers(stream, [(":method", "GET"), (":scheme", "http"), (":path", "/data/x"), (":authority", "x")])
                        http2.h2.reset_stream(stream)
                        if not http2.flush():
                            break
                    elif kind == "pings":
                        if not line.say(frame(PING, 0, 0, b"12345678") * 100):
                            break
                    elif kind == "settings":
                        if not line.say(frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff") * 100):
                            break
                    elif kind == "continuations":
                        if not line.say(frame(HEADERS, 1, 1, b"\x82") + frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b" * 1000) * 50):
                            break
                    elif kind == "bomb":
                        # One name and value that stay in the table, named thousands of times (CVE-2016-6581).
                        block = b"\x82\x84\x86\x41\x01x" + b"\x40\x01a" + b"\x7f\xe1\x1e" + b"a" * 4000 + b"\xbe" * 16000
                        if not line.say(frame(HEADERS, 5, 1, block[:16000])):
                            break
                    time.sleep(0.001)
        except OSError:
            time.sleep(0.05)


@pytest.mark.parametrize("kind", ["resets", "pings", "settings", "continuations", "bomb"])
def test_floods_of_http2_frames_harm_nobody(cluster, honest, source, kind):
    threads = [threading.Thread(target=flood_http2, args=(cluster.gateway.port, source, 1.5, kind)) for _ in range(3)]
    for thread in threads:
        thread.start()
    honest.await_rounds(2)
    for thread in threads:
        thread.join(60)


def test_answers_that_nobody_takes_are_bounded_over_http2(cluster, honest, source):
    """A window of zero: 256 streams of each connection ask, and their answers can't leave."""
    import h2.settings

    held = []
    for _ in range(20):
        line = Line(cluster.gateway.port, source)
        held.append(line)
        http2 = Http2(line)
        http2.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        for _ in range(100):
            http2.begin([(":method", "GET"), (":scheme", "http"), (":path", "/data/x"), (":authority", "x")])
    honest.await_rounds(2)
    await_all_ended(held, GENEROUS)
    for line in held:
        line.close()


def test_probes_are_answered_while_strangers_hold_admin_ports(cluster, crowd):
    for process in (cluster.gateway, cluster.worker, cluster.coordinator):
        lines = []
        for opening in (
            b"",
            b"GET /healthz HT",
            b"GET /healthz HTTP/1.1\r\nhost: x\r\n",
            b"GET /metrics HTTP/1.1\r\ncontent-length: 10000000\r\n\r\n",
            PREFACE,
        ):
            lines += crowd(process.admin, 60, opening)
        with Line(process.admin) as line:
            line.say(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert line.read_answer().status == 200
        await_all_ended(lines, GENEROUS)


def test_the_admin_ports_change_nothing(cluster, source):
    for process in (cluster.gateway, cluster.worker, cluster.coordinator):
        for method in ("GET", "POST", "PUT", "DELETE"):
            for path in ("/", "/shutdown", "/v1/workers", "/metrics/../config", "/debug/pprof", "/data/honest/1", "/config"):
                with Line(process.admin, source) as line:
                    line.say(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
                    assert line.read_answer().status in (0, 404, 405), (process.name, method, path)


def test_strangers_leave_nothing_behind(cluster):
    """When all of the above have gone, no place is taken."""
    for name in ("verbs3_gateway_requests_unproven", "verbs3_gateway_form_bytes"):
        await_that(lambda: metric(cluster.gateway.admin, name) == 0, name)  # noqa: B023
    await_that(lambda: metric(cluster.gateway.admin, "verbs3_gateway_connections_unproven") <= 3, "connections of strangers are left")
