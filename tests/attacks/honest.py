"""Owns the honest client: it writes, reads and lists all the while, and remembers what it was refused and how long it waited.

Each request goes over a connection of its own, which is what an attacker of connections would deny. Knows no attack.
"""

import threading
import time
from dataclasses import dataclass

from lines import Answer, Peer
from processes import HONEST

PAUSE = 0.02
# Seconds within which who is turned away at the door knows it: who has to give way is given one.
AT_THE_DOOR = 2.5
OBJECT = b"honest" * 10_000


@dataclass
class Failure:
    when: float
    what: str


class HonestClient:
    """Rounds of PUT, GET, HEAD and list. `failures` are answers that an honest client must not see."""

    def __init__(self, port: int, path: str = "/data/honest", wrap=None):
        self.peer = Peer(port, HONEST, wrap=wrap)
        self.path = path
        self.failures: list[Failure] = []
        self.delays = 0
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
        if answer.status == 0:
            # Refused at the door, as one of a crowd may be: whoever comes again has to be let in. What was cut later, was cut by a
            # time, on a machine that let this client wait.
            tried = began
            for _ in range(20):
                self.delays += time.monotonic() - tried < AT_THE_DOOR
                self.stopped.wait(0.25)
                tried = time.monotonic()
                answer = self.try_once(method, path, how)
                if answer.status:
                    break
        ended = time.monotonic()
        self.latencies.append((ended, ended - began))
        if answer.status != status:
            self.failures.append(Failure(ended, f"{method} {path}: {answer.verdict} instead of {status}"))
        elif wanted is not None and answer.body != wanted:
            self.failures.append(Failure(ended, f"{method} {path}: {len(answer.body)} other bytes than were written"))

    def try_once(self, method: str, path: str, how: dict) -> Answer:
        try:
            return self.peer.call(method, path, **how)
        except TimeoutError:
            return Answer(599)
        except OSError:
            return Answer(0)

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
