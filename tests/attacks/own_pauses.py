"""Owns how long this process itself stood still: on a machine under load an honest client is cut by a deadline that it missed.

What the processes under attack do never counts as a pause: the watch asks for nothing but its own turn. Knows no client.
"""

import threading
import time

# Of the watch. Much below any pause that excuses somebody.
LOOK_EVERY = 0.1
# Half of what a stranger's connection is left its place for.
EXCUSES = 0.5


class OwnPauses:
    """Looks at the clock all the while; a look that comes late was a pause of this process or of the machine."""

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.last = clock()
        self.pauses: list[tuple[float, float]] = []
        self.over = threading.Event()

    def start(self):
        threading.Thread(target=self.run, name="own pauses", daemon=True).start()
        return self

    def run(self):
        while not self.over.wait(LOOK_EVERY):
            self.look()

    def stop(self):
        self.over.set()

    def look(self):
        """Notes the time since the look before, if that is longer than looks are apart."""
        now = self.clock()
        if now - self.last > 2 * LOOK_EVERY:
            self.pauses.append((self.last, now))
        self.last = now

    def longest_since(self, began: float) -> float:
        """Seconds of the longest pause since then. What of it lay before does not count."""
        under_way = (self.last, self.clock())
        return max(end - max(start, began) for start, end in [*self.pauses, under_way] if end >= began)


def count_served(tries: int, is_served) -> int:
    """How many of so many tries are served. One that fails while this process itself stood still is made anew: it came late."""
    pauses, served, made = OwnPauses().start(), 0, 0
    for _ in range(10 * tries):
        if made == tries:
            break
        began = time.monotonic()
        try:
            success = is_served()
        except OSError:
            success = False
        if success or pauses.longest_since(began) < EXCUSES:
            made, served = made + 1, served + success
        time.sleep(0.1)
    pauses.stop()
    return served
