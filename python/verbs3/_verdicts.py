"""What the cache did for this process's reads, as answers tell it (`x-verbs3-cache`)."""

from __future__ import annotations

from dataclasses import dataclass

from . import _native


@dataclass(frozen=True)
class HitRate:
    """GETs by lent memory, by what the cache did for them. HEADs and reads over HTTP are not in it.

    >>> HitRate(hits=9, partial=0, misses=1, bypassed=0).rate
    0.9
    """

    hits: int
    partial: int
    misses: int
    bypassed: int

    @property
    def reads(self) -> int:
        """All of them. 0 as well where the gateway tells nothing (`gateway.cache_headers`)."""
        return self.hits + self.partial + self.misses + self.bypassed

    @property
    def rate(self) -> float | None:
        """The share of reads that the cache answered alone. `None`: there were no reads."""
        return self.hits / self.reads if self.reads else None


def hit_rate() -> HitRate:
    """Counts the reads of this process, by all its readers and clients. A forked child counts anew.

    >>> import verbs3
    >>> reader = verbs3.connect()
    >>> before = verbs3.hit_rate().reads
    >>> view = reader.read("train", "shard-00.tar")
    >>> verbs3.hit_rate().reads - before
    1
    """
    return HitRate(*_native.NativeClient.process_verdicts())
