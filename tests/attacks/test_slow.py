"""Known identities that hold things: uploads that trickle, answers that nobody takes, chunks that are never whole."""

import threading
import time

import pytest
from chunked import SIGNED
from lines import Line, Peer, await_all_ended, await_that, signed_form
from own_pauses import count_served
from processes import BODIES, HONEST, MIB, OTHER_WARMER, OWNER, Key, metric

# Of deadlines of 4 s and windows of 4 s.
GENEROUS = 90


def test_uploads_that_come_too_slowly_are_cut(cluster, honest, gateway, store, held):
    """A byte now and then, which no idle time catches."""
    for number in range(40):
        request = gateway.signed("PUT", f"/data/slow/{number}", headers={"content-length": "1000000"}, payload="UNSIGNED-PAYLOAD")
        line = gateway.line()
        line.say(request.wire())
        held.append(line)
    left, end = list(held), time.monotonic() + GENEROUS
    while left:
        left = [line for line in left if line.say(b"a") and not line.is_closed() and not line.buffer]
        assert time.monotonic() < end, f"{len(left)} slow uploads are still taken"
        time.sleep(0.2)
    honest.await_rounds(2)
    assert store.call("GET", "/data", query=[("list-type", "2"), ("prefix", "slow/")]).body.count(b"<Key>") == 0


def test_uploads_that_stop_are_cut(cluster, honest, gateway, store, held):
    for number in range(40):
        line = gateway.line()
        line.say(
            gateway.signed("PUT", f"/data/stopped/{number}", headers={"content-length": "1000000"}, payload="UNSIGNED-PAYLOAD").wire()
            + b"a" * 100_000
        )
        held.append(line)
    honest.await_rounds(2)
    # Each is answered 400 RequestTimeout, or cut.
    await_that(lambda: all(line.is_closed() or line.buffer for line in held), "stopped uploads are waited for", GENEROUS)
    assert store.call("GET", "/data", query=[("list-type", "2"), ("prefix", "stopped/")]).body.count(b"<Key>") == 0


def test_answers_that_are_not_taken_are_cut(cluster, honest, gateway, held):
    """A large object, asked for over and over and never read; and one that is read by a few bytes a second."""
    assert gateway.call("PUT", "/data/large", body=b"l" * (24 * MIB)).status == 200
    for _ in range(24):
        line = gateway.line()
        line.say(gateway.signed("GET", "/data/large").wire())
        held.append(line)
    honest.await_rounds(3)
    end = time.monotonic() + GENEROUS
    while metric(cluster.gateway.admin, "verbs3_gateway_requests_in_flight") > 3:
        for line in held[:6]:
            line.socket.settimeout(0.05)
            try:
                line.socket.recv(100)
            except OSError:
                pass
        assert time.monotonic() < end, "answers that nobody takes are still under way"
        time.sleep(0.2)


def test_chunks_of_16_mib_are_held_within_the_bound(cluster, honest, gateway, held):
    """A signed chunk is proven at its end alone: nobody may keep it until then in memory."""
    for number in range(60):
        path = f"/data/chunks/{number}"
        signer_head = {
            "content-encoding": "aws-chunked",
            "x-amz-decoded-content-length": str(16 * MIB),
            "content-length": str(16 * MIB + 500),
        }
        line = gateway.line()
        line.socket.settimeout(0.5)
        line.say(gateway.signed("PUT", path, headers=signer_head, payload=SIGNED).wire())
        line.say(b"1000000;chunk-signature=" + b"0" * 64 + b"\r\n" + b"c" * (4 * MIB))
        held.append(line)
    assert metric(cluster.gateway.admin, "verbs3_gateway_body_memory_bytes") <= BODIES
    honest.await_rounds(2)


def test_documents_in_chunks_of_16_mib_are_refused(cluster, honest, gateway):
    """s3s reads a document whole, so a chunk of it is bounded by xml_max."""
    for query in ([("delete", "")], [("cors", "")]):
        headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(16 * MIB), "content-length": str(16 * MIB + 500)}
        with gateway.line() as line:
            line.say(
                gateway.signed("POST" if query[0][0] == "delete" else "PUT", "/data", query=query, headers=headers, payload=SIGNED).wire()
            )
            line.say(b"1000000;chunk-signature=" + b"0" * 64 + b"\r\n" + b"c" * (5 * MIB))
            assert line.read_answer().status in (0, 400, 403, 413, 503)


def test_one_identity_does_not_take_every_place(cluster, honest, gateway, held):
    """Bodies up to the bound of one identity; another one is served."""
    for number in range(300):
        line = gateway.line()
        line.say(
            gateway.signed("PUT", f"/data/many/{number}", headers={"content-length": "10000000"}, payload="UNSIGNED-PAYLOAD").wire() + b"a"
        )
        held.append(line)
    await_that(lambda: all(line.is_closed() or line.buffer for line in held), "uploads that do not come are waited for", GENEROUS)
    assert Peer(cluster.gateway.port, OWNER).call("GET", "/data/honest/1").status == 200


@pytest.mark.parametrize("kind", ["uploads", "documents"])
def test_one_identity_leaves_memory_for_the_bodies_of_others(cluster, source, held, kind):
    """By default, too: 423 uploads take all of bodies_max (256 MiB), and uploads_per_identity_max allows 448. Of documents 32 are enough,
    before anybody asks what their sender may do: this one may nothing here."""
    attacker = Peer(cluster.patient.port, OWNER if kind == "uploads" else OTHER_WARMER, source)
    for number in range(100 if kind == "uploads" else 12):
        line = attacker.line()
        request = {
            "uploads": lambda: attacker.signed(
                "PUT", f"/data/memory/{number}", headers={"content-length": "10000000"}, payload="UNSIGNED-PAYLOAD"
            ),  # noqa: B023
            "documents": lambda: attacker.signed(
                "POST", "/data", query=[("delete", "")], headers={"content-length": str(4 * MIB)}, payload="UNSIGNED-PAYLOAD"
            ),
        }
        line.say(request[kind]().wire() + b"a")
        held.append(line)
    # Those that got no memory were answered; the others wait for their bodies, and hold what they got.
    await_that(
        lambda: (
            metric(cluster.patient.admin, "verbs3_gateway_requests_in_flight") + sum(line.is_closed() or bool(line.buffer) for line in held)
            >= len(held)
        ),
        "the bodies have not begun",
    )
    answer = Peer(cluster.patient.port, HONEST).call("PUT", "/data/memory/honest", body=b"h" * MIB)
    for line in held:
        line.close()
    await_that(lambda: metric(cluster.patient.admin, "verbs3_gateway_body_memory_bytes") < MIB, "the memory is not given back")
    assert answer.verdict == "200"


def test_one_identity_leaves_memory_for_the_reads_of_others(cluster, source, held):
    """Answers that are not taken hold their first bytes for gateway.timeouts.write_stall, a minute by default; a reader waits five seconds."""
    gateway = Peer(cluster.patient.port, OWNER, source)
    assert gateway.call("PUT", "/data/large", body=b"l" * (24 * MIB)).status == 200
    for _ in range(80):
        line = gateway.line()
        line.say(gateway.signed("GET", "/data/large").wire())
        held.append(line)
    time.sleep(2)
    verdicts = [Peer(cluster.patient.port, HONEST).call("GET", "/data/honest/1").verdict for _ in range(5)]
    assert verdicts == ["200"] * 5


def test_one_identity_leaves_memory_for_the_forms_of_others(cluster, source, held):
    attacker, other = Peer(cluster.patient.port, OWNER, source), Peer(cluster.patient.port, HONEST)
    for number in range(4):
        line = attacker.line()
        line.say(signed_form(OWNER, attacker.host, f"forms/{number}", 4 * MIB))
        held.append(line)
    await_that(lambda: metric(cluster.patient.admin, "verbs3_gateway_form_bytes") > 0, "no form has begun")
    time.sleep(0.5)
    with other.line() as line:
        line.say(signed_form(HONEST, other.host, "forms/honest", body=b"h" * MIB))
        verdict = line.read_answer().verdict
    for line in held:
        line.close()
    await_that(lambda: metric(cluster.patient.admin, "verbs3_gateway_form_bytes") == 0, "the memory is not given back")
    assert verdict == "204"


@pytest.mark.crowd
def test_one_identity_leaves_connections_for_others(cluster, source, held):
    """One signed request on each, and another before it is idle for too long. By default one address is enough for all of them."""
    attacker = Peer(cluster.patient.port, OWNER, source)
    for _ in range(210):
        line = attacker.line()
        line.say(attacker.signed("GET", "/data", query=[("location", "")]).wire())
        line.read_answer()
        held.append(line)
    statuses = []
    for _ in range(4):
        try:
            statuses.append(Peer(cluster.patient.port, HONEST).call("GET", "/data", query=[("location", "")]).status)
        except OSError:
            statuses.append(0)
        time.sleep(0.3)
    assert 200 in statuses


def test_a_known_client_that_goes_quiet_is_let_go(cluster, gateway, held):
    """One request, signed, and then nothing: the connection is idle, however known its client is."""
    for _ in range(50):
        line = gateway.line()
        line.say(gateway.signed("GET", "/data/honest/1").wire())
        assert line.read_answer().status in (200, 404)
        held.append(line)
    await_all_ended(held, GENEROUS)


@pytest.mark.crowd
def test_one_identity_at_its_bound_leaves_connections_for_others(cluster, source):
    """A request on each, again and again, so that none is ever idle for long; and a new connection for each that ends."""
    attacker, over = Peer(cluster.patient.port, OWNER, source), threading.Event()

    def hold():
        lines: list[Line | None] = [None] * 210
        wire, sent = b"", 0.0
        while not over.is_set():
            if time.monotonic() - sent > 60:
                wire, sent = attacker.signed("HEAD", "/data/none").wire(), time.monotonic()
            for number, line in enumerate(lines):
                if line is None or line.is_closed():
                    try:
                        lines[number] = line = attacker.line()
                    except OSError:
                        continue
                line.say(wire)
            over.wait(0.2)
        for line in lines:
            if line is not None:
                line.close()

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        await_that(lambda: metric(cluster.patient.admin, "verbs3_gateway_connections") >= 180, "the attacker never had its connections")
        served = count_served(20, lambda: Peer(cluster.patient.port, HONEST).call("GET", "/data", query=[("location", "")]).status == 200)
    finally:
        over.set()
        holding.join()
    assert served >= 18, f"{served} of 20 newcomers were served"
