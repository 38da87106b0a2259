"""Owns how long this process itself stood still: on a machine under load an honest client is cut by a deadline that it missed.

What the processes under attack do never counts as a pause: the watch asks for nothing but its own turn. Knows no client.
"""

import threading
import time

# Of the watch. Much below any pause that excuses somebody.
LOOK_EVERY = 0.1


class OwnPauses:
    """Looks at the clock all the while; a look that comes late was a pause of this process or of the machine."""

    def __init__(self, clock=time.monotonic):
        self.clock = clock
        self.last = clock()
        self.pauses: list[tuple[float, float]] = []

    def start(self):
        threading.Thread(target=self.run, name="own pauses", daemon=True).start()
        return self

    def run(self):
        while True:
            time.sleep(LOOK_EVERY)
            self.look()

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
