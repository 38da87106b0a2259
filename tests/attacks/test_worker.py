"""A worker's port: handshakes of strangers, and frames of a peer that knows the secret and means harm."""

import hashlib
import hmac
import os
import re
import struct
import subprocess

import pytest
from lines import Line, await_all_ended, await_that
from processes import MIB, SECRET, find_binary, metric

MAGIC = b"vb3F"
HELLO, CHALLENGE, PROOF, WELCOME, REJECT, CALL, PART, PUSH, CANCEL, FAIL, GOODBYE = 1, 2, 3, 4, 5, 16, 17, 19, 20, 22, 23
# What the attacked release says: a peer of another one would be refused before it does any harm.
VERSION = int(re.search(r"protocol (\d+)", subprocess.check_output([find_binary(), "version"], text=True))[1])
GENEROUS = 60


def frame(
    kind: int,
    payload: bytes = b"",
    *,
    flags: int = 0,
    reserved: int = 0,
    message: int | None = None,
    segments: int = 0,
    call: int = 0,
    offset: int = 0,
    data: int = 0,
    lent: int = 0,
    magic: bytes = MAGIC,
) -> bytes:
    """As rdma/src/calls/frame.rs lays it out; MESSAGE is what is announced, whatever comes."""
    announced = len(payload) if message is None else message
    return struct.pack("<4sBBHIIQQQQQQ", magic, kind, flags, reserved, announced, segments, call, offset, data, lent, 0, 0) + payload


def greeting(
    version: int = VERSION, frame_max: int = 65536, calls: int = 256, name: bytes = b"hostile", name_bytes: int | None = None
) -> bytes:
    return struct.pack("<IIII32s64s", version, frame_max, calls, len(name) if name_bytes is None else name_bytes, os.urandom(32), name)


def read_frame(line: Line) -> tuple[int, bytes]:
    while len(line.buffer) < 64:
        if not line.read_more():
            return 0, b""
    kind, length = line.buffer[4], struct.unpack_from("<I", line.buffer, 8)[0]
    while len(line.buffer) < 64 + length:
        if not line.read_more():
            return 0, b""
    payload, line.buffer = line.buffer[64 : 64 + length], line.buffer[64 + length :]
    return kind, payload


def shake(line: Line, secret: str, hello: bytes | None = None) -> int:
    """The whole handshake; the kind of the last frame that came."""
    hello = hello or greeting()
    line.say(frame(HELLO, hello))
    kind, challenge = read_frame(line)
    if kind != CHALLENGE:
        return kind
    proven = hmac.new(secret_of(secret), b"verbs3 requester\0" + hello + challenge, hashlib.sha256).digest()
    line.say(frame(PROOF, proven))
    return read_frame(line)[0]


def secret_of(secret: str) -> bytes:
    from processes import CLUSTER

    return f"{CLUSTER}\n{secret}".encode()


@pytest.fixture
def port(cluster):
    return cluster.worker.port


GARBAGE = {
    "zeros": b"\0" * 5000,
    "ones": b"\xff" * 5000,
    "http": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + b"\0" * 600,
    "magic_alone": MAGIC,
    "other_magic": frame(HELLO, greeting(), magic=b"vb2F"),
    "call_first": frame(CALL, b"x" * 100, call=1),
    "proof_first": frame(PROOF, b"\0" * 32),
    "challenge": frame(CHALLENGE, greeting()),
    "welcome": frame(WELCOME, b"\0" * 32),
    "goodbye": frame(GOODBYE),
    "long_hello": frame(HELLO, greeting(), message=2**32 - 1),
    "huge_hello": frame(HELLO, b"a" * MIB),
    "short_hello": frame(HELLO, greeting()[:-1]),
    "flags": frame(HELLO, greeting(), flags=255),
    "reserved": frame(HELLO, greeting(), reserved=1),
    "segments": frame(HELLO, greeting(), segments=2**31),
    "data": frame(HELLO, greeting(), data=2**63),
    "lent": frame(HELLO, greeting(), lent=2**63),
    "kind": frame(99, greeting()),
    "version_0": frame(HELLO, greeting(version=0)),
    "version_future": frame(HELLO, greeting(version=2**32 - 1)),
    "reject": frame(REJECT, b"\0" * 8),
    "random": os.urandom(10_000),
}


def test_garbage_handshakes_are_refused(cluster, port, source, honest):
    for name, garbage in GARBAGE.items():
        with Line(port, source) as line:
            line.say(garbage)
            kinds = set()
            while kind := read_frame(line)[0]:
                kinds.add(kind)
            assert WELCOME not in kinds and CALL not in kinds, name
    honest.await_rounds(1)


@pytest.mark.parametrize("secret", ["", "another secret of 16", SECRET[:-1], SECRET + "\n", SECRET.upper()])
def test_another_secret_is_refused(port, source, secret):
    with Line(port, source) as line:
        assert shake(line, secret) == REJECT
        line.say(frame(CALL, b"x", call=1))
        assert read_frame(line)[0] == 0


def test_a_proof_is_not_reflected_nor_replayed(port, source):
    """The server's own label and nonces are under its proof: what one connection was told proves nothing on another."""
    hello = greeting()
    with Line(port, source) as first:
        first.say(frame(HELLO, hello))
        kind, challenge = read_frame(first)
        assert kind == CHALLENGE
        proven = hmac.new(secret_of(SECRET), b"verbs3 requester\0" + hello + challenge, hashlib.sha256).digest()
        first.say(frame(PROOF, proven))
        kind, welcome = read_frame(first)
        assert kind == WELCOME, "the handshake has changed: this file follows rdma/src/calls/handshake.rs"
    for proof in (proven, welcome[:32], challenge[:32]):
        with Line(port, source) as second:
            second.say(frame(HELLO, hello))
            assert read_frame(second)[0] == CHALLENGE
            second.say(frame(PROOF, proof))
            assert read_frame(second)[0] == REJECT
    # The greeting of the worker sent back to it: its own challenge as a hello.
    with Line(port, source) as third:
        third.say(frame(HELLO, challenge))
        kind, again = read_frame(third)
        assert kind == CHALLENGE and again != challenge
        third.say(frame(PROOF, hmac.new(b"", b"", hashlib.sha256).digest()))
        assert read_frame(third)[0] == REJECT


def test_strangers_hold_no_handshake_for_long(cluster, port, source, honest):
    lines = []
    for opening in (b"", MAGIC, frame(HELLO, greeting())[:70], frame(HELLO, greeting()), frame(HELLO, greeting(), message=4000)):
        for _ in range(40):
            line = Line(port, source)
            line.say(opening)
            lines.append(line)
    honest.await_rounds(2)
    await_all_ended(lines, GENEROUS)


def test_trickled_handshakes_are_cut(port, source):
    line = Line(port, source)
    whole = frame(HELLO, greeting())
    import time

    end = time.monotonic() + GENEROUS
    for at in range(len(whole)):
        if not line.say(whole[at : at + 1]) or line.is_closed():
            break
        assert time.monotonic() < end
        time.sleep(0.05)
    line.await_end(GENEROUS)


HOSTILE = {
    "message_too_long": frame(CALL, b"", message=2**32 - 1, call=1),
    "message_of_64_mib": frame(CALL, b"a" * MIB, message=64 * MIB, call=1),
    "garbage_call": frame(CALL, os.urandom(5000), call=1),
    "lent_too_much": frame(CALL, b"x", call=1, lent=2**63),
    "segments_too_many": frame(CALL, b"x", call=1, segments=2**32 - 1),
    "part_of_no_call": frame(PART, b"x", call=99, data=1),
    "push_of_no_call": frame(PUSH, call=99, data=2**40),
    "cancel_of_no_call": frame(CANCEL, call=99),
    "fail": frame(FAIL, b"x", call=1),
    "hello_again": frame(HELLO, greeting()),
    "same_call_twice": frame(CALL, b"x", call=1) * 2,
    "call_zero": frame(CALL, b"x", call=0),
    "call_max": frame(CALL, b"x", call=2**64 - 1),
    "unknown": frame(77, b"x"),
    "magic": b"\0" * 64,
    "goodbye_then_call": frame(GOODBYE) + frame(CALL, b"x", call=1),
    "many_calls": b"".join(frame(CALL, b"x", call=number) for number in range(1, 5000)),
    "random": os.urandom(100_000),
    "half": frame(CALL, b"", message=60_000, call=1),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_peer_harms_its_own_connection_alone(cluster, port, source, honest, hostile):
    before = cluster.worker.memory()
    with Line(port, source) as line:
        assert shake(line, SECRET) == WELCOME, "the handshake has changed: this file follows rdma/src/calls/handshake.rs"
        line.socket.settimeout(2)
        line.say(HOSTILE[hostile])
        try:
            while read_frame(line)[0]:
                pass
        except TimeoutError:
            pass
    honest.await_rounds(1)
    assert cluster.worker.memory() < before + 128 * MIB


def test_bounds_of_the_greeting_are_taken_as_they_are(port, source, honest):
    for hello in (
        greeting(frame_max=0),
        greeting(frame_max=2**32 - 1),
        greeting(calls=0),
        greeting(calls=2**32 - 1),
        greeting(name_bytes=2**32 - 1),
        greeting(name=b"\xff" * 64),
        greeting(name=b"\x1b[2J\n" * 12),
    ):
        with Line(port, source) as line:
            assert shake(line, SECRET, hello) in (WELCOME, REJECT)
            line.say(frame(CALL, b"x", call=1))
    honest.await_rounds(1)


def test_the_worker_is_still_in_the_map(cluster):
    await_that(lambda: metric(cluster.coordinator.admin, "verbs3_coordinator_members") == 1, "the worker is not in the map")
    await_that(lambda: metric(cluster.worker.admin, "verbs3_worker_leased") == 1, "the worker has no lease")
