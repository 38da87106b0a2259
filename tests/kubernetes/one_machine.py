"""Machines that are namespaces: network, mount, PID and UTS of their own, and one wire to a bridge. What runs on one ends with its
first process, which ends with the process that started it."""

import os
import subprocess
import time
from pathlib import Path

BRIDGE = "br0"
# The bridge's own address, where the control plane, the names and the store are.
HUB = "10.77.0.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def make_bridge(count: int) -> None:
    """The wires' other end, in the namespaces of this process, with the routes to the pods of each machine."""
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{HUB}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for number in range(1, count + 1):
        ip("route", "add", pods_of(number), "via", address_of(number), "dev", BRIDGE)


def address_of(number: int) -> str:
    return f"10.77.0.{10 + number}"


def pods_of(number: int) -> str:
    return f"10.88.{number}.0/24"


def ancestors(process: int) -> list[int]:
    found = []
    while process:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        process = int(next(line for line in lines if line.startswith("PPid:")).split()[1])
        found.append(process)
    return found


class Machine:
    """One of them, by its first process."""

    def __init__(self, number: int, log: Path, words: list[str]):
        self.number, self.name, self.address = number, f"n{number}", address_of(number)
        with log.open("ab") as file:
            own = ["unshare", "--mount", "--uts", "--net", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]
            self.outer = subprocess.Popen([*own, *words], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.inner = self.first_process()
        ip("link", "add", "name", "eth0", "netns", str(self.inner), "type", "veth", "peer", "name", f"v{number}")
        ip("link", "set", f"v{number}", "master", BRIDGE, "up")

    def first_process(self) -> int:
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = children.read_text().split()
            # It is there before it has its own namespaces.
            if found and os.readlink(f"/proc/{found[0]}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
                return int(found[0])
            time.sleep(0.02)
        raise SystemExit(f"ERROR: machine {self.name} has no first process")

    def inside(self, words: list) -> list[str]:
        """The command line that runs these words on the machine."""
        return ["nsenter", "--target", str(self.inner), "--mount", "--uts", "--net", "--pid", "--", *(str(word) for word in words)]

    def processes(self, *words: str) -> list[int]:
        """Those of the machine, in whatever container, whose command line begins with these words, by their ids here."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                said = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if said[: len(words)] == list(words) and self.inner in ancestors(int(path.name)):
                    found.append(int(path.name))
            except OSError:
                # It has ended meanwhile.
                continue
        return found

    def end(self) -> None:
        """Its first process, and with it all of them."""
        self.outer.kill()
        self.outer.wait()
        try:
            # It was the outer one's child, and is this process' now, if that is the first of its namespace.
            os.waitpid(self.inner, 0)
        except ChildProcessError:
            return
