"""The honest client notices what it is there for: each door here turns it away in another way, and the client's own pauses excuse nothing else."""

import contextlib
import socket
import threading
import time

import pytest
from honest import AT_THE_DOOR, HonestClient, HonestMark
from hostile_soak import find_wrongs, tell_refusals
from own_pauses import OwnPauses

SERVED = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
CUT = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"
SLOW = AT_THE_DOOR + 0.5


class Door:
    """Does with one connection after the other what `doings` say: waits so many seconds, says this, and closes it. Then serves everyone."""

    def __init__(self, *doings: tuple[float, bytes]):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.doings = self.listener.getsockname()[1], list(doings)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection:
                    connection.recv(65536)
                    seconds, answer = self.doings.pop(0) if self.doings else (0, SERVED)
                    time.sleep(seconds)
                    connection.sendall(answer)


class StoodStill:
    """Pauses of a process that stood still for so many seconds."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def longest_since(self, began: float) -> float:
        return self.seconds


@pytest.fixture
def unharmed():
    """No cluster is attacked here."""


def visit(*doings: tuple[float, bytes], own_pause: float = 0, among_crowd: bool = False):
    """One request at such a door, judged as each attack's honest client is."""
    send_to(Door(*doings), own_pause).assert_served(HonestMark(0, 0), among_crowd)


def send_to(door: Door, own_pause: float = 0) -> HonestClient:
    client = HonestClient(door.port, pauses=StoodStill(own_pause))
    client.ask("GET", "/data/k", 200)
    door.listener.close()
    return client


def soak_of(door: Door, **changes) -> list[str]:
    """What a soak says whose only honest client asked there."""
    report = {"findings": [], "alive": {"gateway": True}, "memory": {"gateway": {"peak_mib": 100, "bound_mib": 100}, "worker": {"peak_mib": 1}}}
    return find_wrongs(report | {"honest": {"gateway": tell_refusals(send_to(door))}} | changes)


def test_the_honest_client_is_content_where_it_is_served():
    visit()


@pytest.mark.parametrize("seconds", [0, SLOW], ids=["at_once", "after_seconds"])
def test_the_honest_client_counts_who_was_let_in_later(seconds):
    with pytest.raises(AssertionError, match="turned away"):
        visit((seconds, b""))


def test_the_honest_client_counts_long_waits_among_a_crowd_too():
    visit((0, b""), among_crowd=True)
    with pytest.raises(AssertionError, match="kept waiting"):
        visit((SLOW, b""), among_crowd=True)


def test_the_honest_client_counts_a_body_that_is_cut():
    with pytest.raises(AssertionError, match="cut after 4 bytes"):
        visit((0, CUT), among_crowd=True)


def test_the_honest_client_counts_what_never_lets_it_in():
    with pytest.raises(AssertionError, match="0 instead of 200"):
        visit(*[(0, b"")] * 30, own_pause=SLOW)


def test_a_soak_fails_for_long_waits_and_not_for_a_shut_door():
    assert soak_of(Door()) == []
    assert soak_of(Door((0, b""))) == []
    [wrong] = soak_of(Door((SLOW, b"")))
    assert "kept waiting" in wrong and "GET /data/k" in wrong
    [wrong] = soak_of(Door((0, CUT)))
    assert "refused" in wrong


def test_a_soak_fails_for_all_else_that_it_looks_at():
    for change, said in [
        ({"findings": ["smuggled"]}, "smuggled"),
        ({"alive": {"gateway": False}}, "gateway has ended"),
        ({"memory": {"gateway": {"peak_mib": 101, "bound_mib": 100}}}, "101 MiB"),
    ]:
        [wrong] = soak_of(Door(), **change)
        assert said in wrong


def test_only_a_pause_past_a_deadline_excuses_a_refusal():
    visit((0, b""), own_pause=SLOW)
    with pytest.raises(AssertionError, match="turned away"):
        visit((0, b""), own_pause=AT_THE_DOOR - 0.1)


def test_a_pause_is_what_a_late_look_shows():
    now = [100.0]
    pauses = OwnPauses(clock=lambda: now[0])
    for now[0] in (100.1, 100.2, 103.2, 103.3):
        pauses.look()
    assert pauses.longest_since(100.0) == pytest.approx(3.0)
    # What of a pause lay before the request does not count, and one from before not at all.
    assert pauses.longest_since(102.2) == pytest.approx(1.0)
    assert pauses.longest_since(103.25) == pytest.approx(0.0)
    # One that is under way counts already.
    now[0] = 107.3
    assert pauses.longest_since(103.25) == pytest.approx(4.0)
