"""A lock that a forked child finds free, whoever held it in its parent."""

from __future__ import annotations

import os
import threading


class ProcessLock:
    """Guards what a child may take over as it is: a thread that held it at the fork is not there."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}

    def __enter__(self) -> None:
        # One step of a dictionary: threads that come at once get the same lock.
        self._locks.setdefault(os.getpid(), threading.Lock()).acquire()

    def __exit__(self, *_: object) -> None:
        self._locks[os.getpid()].release()
