"""Machines that are virtual ones under plain emulation, with a soft RDMA device on their wire to the bridge (tests/testbed/vm.sh):
slow, and with a kernel of their own. What their first process says is in its log at once."""

import os
import subprocess
from pathlib import Path

from one_machine import BRIDGE, address_of, ip

VM = Path(__file__).resolve().parents[1] / "testbed/vm.sh"
MEMORY_MIB, SECONDS = 5120, 3600
# Where the guest sees the folder that it shares with this machine.
SHARED = "/run/vm"


class VirtualMachine:
    """One of them, by the process that emulates it."""

    def __init__(self, number: int, folder: Path, log: Path, disk: Path, words: list[str]):
        self.number, self.name, self.address = number, f"n{number}", address_of(number)
        wire = f"v{number}"
        ip("tuntap", "add", "dev", wire, "mode", "tap")
        ip("link", "set", wire, "master", BRIDGE, "up")
        with log.open("ab") as file:
            self.outer = subprocess.Popen(
                [str(VM), "run", "--tap", f"{wire}={self.address}", "--rail", "rxe", "--memory", str(MEMORY_MIB), "--timeout", str(SECONDS),
                 "--disk", str(disk), "--share", str(folder), "--", *words],
                # Guests have no python3 but Debian's, and no program of the test's environment.
                env=os.environ | {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def end(self) -> None:
        """By its script, which ends the emulator."""
        self.outer.terminate()
        self.outer.wait()
