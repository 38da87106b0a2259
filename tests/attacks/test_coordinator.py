"""A coordinator's API: nothing without proof, nothing by a proof that was heard, and strangers who hold its connections."""

import collections
import hashlib
import hmac
import json
import re
import secrets
import threading
import time

import pytest
from lines import Line, await_all_ended, await_that
from processes import CLUSTER, SECRET, MIB, metric

GENEROUS = 60


def mac(key: bytes, *parts: bytes) -> str:
    made = hmac.new(key, digestmod="sha256")
    for part in parts:
        made.update(len(part).to_bytes(8, "big") + part)
    return made.hexdigest()


def proof(method: str, path: str, body: bytes, recipient: str, *, secret: str = SECRET, cluster: str = CLUSTER, skew: float = 0) -> str:
    """As coordinator/client/src/proof.rs describes it."""
    now, nonce, digest = int((time.time() + skew) * 1000), secrets.token_hex(16), hashlib.sha256(body)
    made = mac(
        f"{cluster}\n{secret}".encode(),
        b"verbs3 coordinator request 2",
        method.encode(),
        path.encode(),
        now.to_bytes(8, "big"),
        nonce.encode(),
        recipient.encode(),
        digest.digest(),
    )
    return f"{now}.{nonce}.{recipient}.{digest.hexdigest()}.{made}"


def ask(port: int, method: str, path: str, body: bytes = b"", header: str | None = None, headers: str = "", source: str | None = None):
    with Line(port, source) as line:
        shown = f"x-verbs3-proof: {header}\r\n" if header is not None else ""
        line.say(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{shown}{headers}\r\n".encode() + body)
        return line.read_answer(method)


def recipient(port: int) -> str:
    """What a coordinator calls itself since its start; it tells everybody."""
    return ask(port, "GET", "/").header("x-verbs3-coordinator")


@pytest.fixture
def port(cluster):
    return cluster.coordinator.port


ROUTES = [
    ("GET", "/v1/cluster"),
    ("GET", "/v1/workers"),
    ("GET", "/v1/map"),
    ("GET", "/v1/hot"),
    ("GET", "/v1/placement"),
    ("GET", "/v1/objects/data/x"),
    ("GET", "/v1/preload"),
    ("GET", "/v1/preload/x"),
    ("GET", "/v1/preload/x/progress"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/activity"),
    ("POST", "/v1/activity"),
    ("GET", "/v1/workers/worker-0/drain"),
    ("POST", "/v1/evict"),
    ("POST", "/v1/pin"),
    ("POST", "/v1/unpin"),
    ("POST", "/v1/invalidate"),
    ("POST", "/v1/notifications"),
    ("POST", "/v1/preload"),
    ("DELETE", "/v1/preload/x"),
    ("POST", "/v1/workers"),
    ("POST", "/v1/workers/worker-0/renew"),
    ("POST", "/v1/workers/worker-0/leave"),
    ("POST", "/v1/workers/worker-0/drain"),
    ("POST", "/v1/workers/worker-0/undrain"),
    ("DELETE", "/v1/workers/worker-0"),
    ("POST", "/v1/workers/worker-0/relay"),
    ("GET", "/"),
    ("GET", "/metrics"),
    ("PUT", "/v1/map"),
]


def test_every_route_is_attacked(port):
    """Each of the document that the coordinator itself gives."""
    path = "/v1/openapi.json"
    answer = ask(port, "GET", path, header=proof("GET", path, b"", recipient(port)))
    assert answer.status == 200, answer
    templates = {
        (method.upper(), re.sub(r"\{[^/]*\}", "[^/]+", path)) for path, methods in json.loads(answer.body)["paths"].items() for method in methods
    }
    assert len(templates) > 20
    forgotten = {(method, path) for method, path in templates if not any(method == one and re.fullmatch(path, found) for one, found in ROUTES)}
    assert not forgotten


@pytest.mark.parametrize("method,path", ROUTES)
def test_nothing_is_told_or_done_without_proof(port, source, method, path):
    body = b'{"prefixes": ["s3://data/"]}' if method == "POST" else b""
    name = recipient(port)
    zeros = f"{int(time.time() * 1000)}.{'0' * 32}.{name}.{hashlib.sha256(body).hexdigest()}.{'0' * 64}"
    for header in (
        None,
        "",
        "x",
        "....",
        zeros,
        zeros[:-64],
        proof(method, path, body, name, secret="another secret of 16"),
        proof(method, path, body, name, cluster="other"),
        proof(method, path, b"another body", name),
        proof(method, path + "?x=1", body, name),
        proof("PATCH", path, body, name),
        proof(method, path, body, "0" * 32),
        proof(method, path, body, name, skew=-3600) if method != "GET" else "",
        proof(method, path, body, name)[:-1] + "0" * 1000,
    ):
        answer = ask(port, method, path, body, header, source=source)
        assert answer.status in (0, 401, 431), (header, answer)
        assert b"127.0.0.1" not in answer.body and b"worker-0" not in answer.body, answer
    assert metric_members(port) == 1


def metric_members(port: int) -> int:
    answer = ask(port, "GET", "/v1/cluster", header=proof("GET", "/v1/cluster", b"", recipient(port)))
    assert answer.status == 200, answer
    return answer.body.count(b"worker-0") and 1


def test_a_proof_opens_what_it_is_for(port):
    """The cases above would pass as well if nobody could ask anything."""
    assert metric_members(port) == 1


def test_no_body_is_waited_for_before_a_proof(port, source):
    name = recipient(port)
    for header in ("", f"x-verbs3-proof: {proof('POST', '/v1/workers', b'x', name, secret='another secret of 16')}\r\n"):
        for length in (1000, 10**15):
            with Line(port, source) as line:
                line.say(f"POST /v1/workers HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{header}\r\n".encode())
                assert line.read_answer().status == 401


def test_a_heard_proof_is_used_once_and_nowhere_else(cluster, port):
    name, path = recipient(port), "/v1/invalidate"
    body = b'{"paths": ["s3://data/nothing"]}'
    heard = proof("POST", path, body, name)
    first = ask(port, "POST", path, body, heard)
    assert first.status != 401, first
    assert ask(port, "POST", path, body, heard).status == 401
    elsewhere = proof("POST", path, body, name)
    assert ask(cluster.other_coordinator.port, "POST", path, body, elsewhere).status == 401
    for changed in (body + b" ", b"", body.replace(b"nothing", b"another")):
        assert ask(port, "POST", path, changed, proof("POST", path, body, name)).status == 401


def test_a_heard_proof_is_of_no_use_after_a_restart(cluster):
    other = cluster.other_coordinator
    path, body = "/v1/invalidate", b'{"paths": ["s3://data/nothing"]}'
    heard = [proof(method, path, body, recipient(other.port)) for method, path, body in (("POST", path, body), ("GET", "/v1/cluster", b""))]
    other.end()
    other.start()
    assert ask(other.port, "POST", path, body, heard[0]).status == 401
    assert ask(other.port, "GET", "/v1/cluster", b"", heard[1]).status == 401


def test_an_answer_without_proof_is_signed_for_nobody(port):
    """Else a coordinator would be an oracle."""
    for header in (None, "x", proof("GET", "/v1/map", b"", recipient(port), secret="another secret of 16")):
        assert ask(port, "GET", "/v1/map", header=header).header("x-verbs3-answer-proof") == ""


def test_the_token_opens_notifications_alone(port, source):
    token = "a-token-of-notifications"
    right = f"authorization: Bearer {token}\r\n"
    event = json.dumps({"Records": [{"s3": {"bucket": {"name": "data"}, "object": {"key": "x"}}}]}).encode()
    assert ask(port, "POST", "/v1/notifications", event, headers=right).status not in (0, 401)
    for path, headers in (
        ("/v1/notifications", f"authorization: Bearer {token}x\r\n"),
        ("/v1/notifications", f"authorization: Bearer {token[:-1]}\r\n"),
        ("/v1/notifications", "authorization: Bearer \r\n"),
        (f"/v1/notifications?token={token}x", ""),
        ("/v1/notifications?token=", ""),
        ("/v1/invalidate", right),
        (f"/v1/invalidate?token={token}", ""),
        ("/v1/preload", right),
        ("/v1//notifications", right),
        ("/v1/notifications/", right),
        ("/v1/notifications/../invalidate", right),
        ("/v1/%6eotifications", right),
    ):
        assert ask(port, "POST", path, event, headers=headers, source=source).status in (401, 404), path
    assert ask(port, "GET", "/v1/notifications", headers=right, source=source).status in (401, 404, 405)


def notify(port: int, key: str, source: str | None = None) -> int:
    """Has an object warmed, as whoever has the token may; the status."""
    record = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "data"}, "object": {"key": key}}}
    event, header = json.dumps({"Records": [record]}).encode(), "authorization: Bearer a-token-of-notifications\r\n"
    return ask(port, "POST", "/v1/notifications?warm=true", event, headers=header, source=source).status


def test_a_flood_of_notifications_leaves_places_for_jobs(cluster, port):
    """Whoever has the token has objects warmed, and nobody else waits for that."""
    verdicts = []

    def flood(first: int):
        for number in range(first, first + 40):
            verdicts.append(notify(port, f"flood/{number}"))

    flooding = [threading.Thread(target=flood, args=(1000 * number,)) for number in range(6)]
    for thread in flooding:
        thread.start()
    for number in range(10):
        job = json.dumps({"prefixes": ["s3://data/flood/"], "id": f"operator-{number}"}).encode()
        answer = ask(port, "POST", "/v1/preload", job, proof("POST", "/v1/preload", job, recipient(port)))
        assert answer.status in (200, 201, 202), answer
    for thread in flooding:
        thread.join()
    assert set(verdicts) <= {200, 202, 204, 503} and len(verdicts) == 240, collections.Counter(verdicts)
    # coordinator.preload.notified_jobs_max, and ours.
    unfinished = sum(metric(cluster.coordinator.admin, f"verbs3_preload_jobs_{state}") for state in ("running", "waiting"))
    assert unfinished <= 30, unfinished


def test_strangers_keep_neither_workers_nor_operators_out(cluster, port, source, honest):
    lines = []
    for opening in (
        b"",
        b"GET /v1/map HT",
        b"GET /v1/map HTTP/1.1\r\nx: y\r\n",
        b"POST /v1/workers HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n",
        b"POST /v1/notifications HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
    ):
        for _ in range(60):
            line = Line(port, source)
            line.say(opening)
            lines.append(line)
    assert metric_members(port) == 1
    honest.await_rounds(1)
    await_all_ended(lines, GENEROUS)
    assert cluster.coordinator.memory() < cluster.at_rest["coordinator"] + 64 * MIB


def test_a_stranger_renews_nothing_at_a_coordinator(port, source):
    lines = []
    for opening, again in (
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
        (b"", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
        (b"POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n", b"a"),
    ):
        line = Line(port, source)
        line.say(opening)
        lines.append((line, again))
    end = time.monotonic() + GENEROUS
    while lines:
        lines = [(line, again) for line, again in lines if line.say(again) and not line.is_closed()]
        assert time.monotonic() < end, "a stranger is still there"
        time.sleep(0.05)


def test_a_proven_senders_huge_bodies_are_bounded(cluster, port):
    """Who has the secret can do much; filling a coordinator's memory is not part of it."""
    held, name = [], recipient(port)
    body = b'{"prefixes": ["' + b"s3://data/" * 10
    for _ in range(40):
        line = Line(port)
        line.socket.settimeout(0.3)
        shown = proof("POST", "/v1/preload", body, name)
        head = f"POST /v1/preload HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\nx-verbs3-proof: {shown}\r\n\r\n"
        line.say(head.encode() + b"a" * (6 * MIB))
        held.append(line)
    assert cluster.coordinator.memory() < cluster.at_rest["coordinator"] + 256 * MIB
    assert metric_members(port) == 1
    for line in held:
        line.close()


def test_garbage_is_answered_or_cut(port, source):
    for garbage in (
        b"\x00" * 5000,
        b"\xff" * 5000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET " + b"/" * 500_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000,
        b"POST /v1/preload HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    ):
        with Line(port, source) as line:
            line.say(garbage)
            assert line.read_answer().status in (0, 400, 401, 414, 431)
    assert metric_members(port) == 1


def test_a_worker_that_is_refused_changes_no_map(cluster, port):
    """A registration under the right secret, for another time: nothing moves."""
    epoch = metric(cluster.coordinator.admin, "verbs3_coordinator_epoch")
    body = json.dumps({"id": "evil", "address": "127.0.0.1:9", "weight": 1000.0}).encode()
    for skew in (-7200, 7200):
        assert ask(port, "POST", "/v1/workers", body, proof("POST", "/v1/workers", body, recipient(port), skew=skew)).status == 401
    assert metric(cluster.coordinator.admin, "verbs3_coordinator_epoch") == epoch
    await_that(lambda: metric(cluster.coordinator.admin, "verbs3_coordinator_members") == 1, "the map has changed")
