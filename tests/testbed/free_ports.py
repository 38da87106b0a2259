#!/usr/bin/env python3
"""Hands out ports on 127.0.0.1 that nobody else of these tests has, nor gets soon: one after the other, whoever asks.

They lie below the range that connections on their way out take theirs from, so that nobody takes one before its process
listens. The port after each is free as well, for the admin pages of `verbs3 dev`. Run by itself it prints one."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile

FIRST_PORT, LAST_PORT = 10_000, 32_000


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def free_port() -> int:
    """The next one after what was handed out last, by whatever process of this user."""
    path = os.path.join(tempfile.gettempdir(), f"verbs3-test-ports-{os.getuid()}")
    # Not by a link, which anybody may have put there.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = file.read()
        port = int(told) if told.isdigit() else random.randrange(FIRST_PORT, LAST_PORT, 2)
        for _ in range(FIRST_PORT, LAST_PORT, 2):
            port = port + 2 if FIRST_PORT <= port < LAST_PORT - 2 else FIRST_PORT
            if is_free(port) and is_free(port + 1):
                file.seek(0)
                file.truncate()
                file.write(str(port))
                return port
    raise SystemExit(f"no two free ports in a row from {FIRST_PORT} to {LAST_PORT}")


if __name__ == "__main__":
    print(free_port())
