"""Owns the honest client: it writes, reads and lists all the while, and remembers what it was refused and how long it waited.

Each request goes over a connection of its own, which is what an attacker of connections would deny. Knows no attack.
"""

import threading
import time
from dataclasses import dataclass

from lines import Answer, Peer
from own_pauses import OwnPauses
from processes import HONEST

PAUSE = 0.02
# Seconds within which who is turned away at the door knows it: who has to give way is given one. It is also less than the shortest
# deadline that the processes give a client (3 s, processes.py). So a client that stood still for less has missed none.
AT_THE_DOOR = 2.5
# How often who was turned away comes again.
TRIES_MORE = 20
OBJECT = b"honest" * 10_000


@dataclass
class Failure:
    when: float
    what: str


@dataclass
class Refusal:
    """A connection that was closed without an answer. OWN_PAUSE: how long this process stood still meanwhile."""

    what: str
    seconds: float
    own_pause: float

    @property
    def is_own_fault(self) -> bool:
        return self.own_pause >= AT_THE_DOOR

    @property
    def is_slow(self) -> bool:
        return self.seconds >= AT_THE_DOOR


@dataclass
class HonestMark:
    """How much an honest client had seen at some moment."""

    failures: int
    refusals: int


class HonestClient:
    """Rounds of PUT, GET, HEAD and list. `failures` are answers that an honest client must not see; `refusals` were mended by trying again."""

    def __init__(self, port: int, path: str = "/data/honest", wrap=None, pauses: OwnPauses | None = None):
        self.peer = Peer(port, HONEST, wrap=wrap)
        self.path = path
        self.failures: list[Failure] = []
        self.refusals: list[Refusal] = []
        self.pauses = pauses or OwnPauses().start()
        self.latencies: list[tuple[float, float]] = []
        self.rounds = 0
        self.last_round = 0.0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"honest {port}", daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopped.set()
        self.thread.join(120)
        assert not self.thread.is_alive(), "the honest client hangs"

    def run(self):
        number = 0
        while not self.stopped.is_set():
            number += 1
            self.round(number)
            self.rounds += 1
            self.last_round = time.monotonic()
            self.stopped.wait(PAUSE)

    def round(self, number: int):
        body = f"{number} ".encode() + OBJECT
        self.ask("PUT", f"{self.path}/{number % 8}", 200, body=body)
        self.ask("GET", f"{self.path}/{number % 8}", 200, wanted=body)
        self.ask("GET", f"{self.path}/{number % 8}", 200, wanted=body)
        self.ask("HEAD", f"{self.path}/{number % 8}", 200)
        bucket, prefix = self.path.strip("/").split("/", 1)
        self.ask("GET", f"/{bucket}", 200, query=[("list-type", "2"), ("prefix", prefix)])

    def ask(self, method: str, path: str, status: int, wanted: bytes | None = None, **how):
        began = time.monotonic()
        answer = self.try_once(method, path, how)
        # Refused at the door, as one of a crowd may be: whoever comes again has to be let in.
        for _ in range(TRIES_MORE):
            if answer.status:
                break
            self.stopped.wait(0.25)
            answer = self.try_once(method, path, how)
        ended = time.monotonic()
        self.latencies.append((ended, ended - began))
        if answer.status != status:
            self.failures.append(Failure(ended, f"{method} {path}: {answer.verdict} instead of {status}"))
        elif wanted is not None and answer.body != wanted:
            self.failures.append(Failure(ended, f"{method} {path}: {len(answer.body)} other bytes than were written"))

    def try_once(self, method: str, path: str, how: dict) -> Answer:
        began = time.monotonic()
        try:
            answer = self.peer.call(method, path, **how)
        except TimeoutError:
            return Answer(599)
        except OSError:
            answer = Answer(0)
        if answer.status == 0:
            refusal = Refusal(f"{method} {path}", time.monotonic() - began, self.pauses.longest_since(began))
            self.refusals.append(refusal)
            # Who has a head of an answer is past the door.
            if answer.headers and not refusal.is_own_fault:
                self.failures.append(Failure(time.monotonic(), f"{method} {path}: cut after {len(answer.body)} bytes of the body"))
        return answer

    def mark(self) -> HonestMark:
        return HonestMark(len(self.failures), len(self.refusals))

    def turned_away(self, since: HonestMark) -> list[Refusal]:
        """Refusals that were not this client's own fault."""
        return [refusal for refusal in self.refusals[since.refusals :] if not refusal.is_own_fault]

    def assert_served(self, since: HonestMark, among_crowd: bool = False):
        """Nothing was refused since then. One of a crowd may be turned away, but at the door: it must not be kept waiting for that."""
        failures, refusals = self.failures[since.failures :], self.turned_away(since)
        assert not failures, f"honest clients were refused: {failures[:5]}"
        slow = [refusal for refusal in refusals if refusal.is_slow]
        assert not slow, f"honest clients were kept waiting, and then turned away: {slow[:5]}"
        assert among_crowd or not refusals, f"honest clients were turned away at the door: {refusals[:5]}"

    def await_service(self):
        """Until it is being served: at once where a round has just ended."""
        if time.monotonic() - self.last_round > 1:
            self.await_rounds(1)

    def await_rounds(self, count: int = 2, seconds: float = 90):
        """Until rounds that began after this call have ended: the attack under way keeps nobody out."""
        wanted, end = self.rounds + count, time.monotonic() + seconds
        while self.rounds < wanted:
            assert time.monotonic() < end, "the honest client is not served"
            time.sleep(0.02)
