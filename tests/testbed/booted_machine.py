"""Owns a virtual machine that boots a disk of its own (host-disk.sh): two NUMA nodes of a CPU each, a NIC on each of them, a
guest agent that runs commands. By plain emulation, without KVM. Knows no test."""

import base64
import json
import os
import shlex
import socket
import subprocess
import time
from pathlib import Path

# Under emulation, on two cores that others use as well.
BOOT_SECONDS = 600
COMMAND_SECONDS = 300
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The virtio NIC is on node 0, the e1000e behind a root port of node 1. Nothing is at the other end of their wires.
DEVICES = """
    -object memory-backend-ram,id=near,size=1280M -object memory-backend-ram,id=far,size=1280M
    -numa node,nodeid=0,cpus=0,memdev=near -numa node,nodeid=1,cpus=1,memdev=far
    -netdev hubport,hubid=0,id=wire0 -device virtio-net-pci,bus=pcie.0,netdev=wire0,romfile=,host_mtu=9000,mac=52:54:00:77:00:01
    -device pxb-pcie,id=node1,bus=pcie.0,bus_nr=64,numa_node=1 -device pcie-root-port,id=port1,bus=node1,chassis=1
    -netdev hubport,hubid=1,id=wire1 -device e1000e,bus=port1,netdev=wire1,romfile=,mac=52:54:00:77:00:02
    -device virtio-serial-pci,bus=pcie.0 -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0
"""


class MachineTrouble(Exception):
    """The machine does not boot, or its agent does not answer in time."""


class BootedMachine:
    """Runs until `end`."""

    def __init__(self, disk: Path, kernel_words: str) -> None:
        self.disk, self.kernel_words, self.console = disk, kernel_words, disk.with_suffix(".console")
        self.boot()

    def boot(self) -> None:
        """A process for each boot: one that goes on over a reset is slowed down by the code that it knows of the former one."""
        self.agent, guests = socket.socketpair()
        self.received, self.asked = b"", 0
        # Without erms the kernel clears memory by eight bytes at once, not by single ones, each of which is looked at here.
        command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,erms=off", "-smp", "2,sockets=2", "-m", "2560",
                   "-display", "none", "-vga", "none", "-no-reboot", "-kernel", f"{self.disk}.kernel", "-initrd", f"{self.disk}.initrd",
                   "-append", f"root=/dev/vda rw console=ttyS0 panic=-1 {self.kernel_words}", "-serial", f"file:{self.console}",
                   "-drive", f"file={self.disk},if=none,id=disk,format=raw,cache=unsafe", "-device", "virtio-blk-pci,bus=pcie.0,drive=disk",
                   "-chardev", f"socket,id=agent,fd={guests.fileno()}", *DEVICES.split()]
        self.qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[guests.fileno()])
        guests.close()
        self.await_boot()

    def end(self) -> None:
        self.qemu.kill()
        self.qemu.wait()

    def ask(self, name: str, within: float, **words) -> object:
        """One command of the agent; its answers to earlier ones, which nobody awaited, are passed over."""
        self.asked += 1
        line = json.dumps({"execute": name, "arguments": words, "id": self.asked})
        try:
            self.agent.sendall(line.encode() + b"\n")
        except OSError as error:
            raise MachineTrouble(f"qemu has ended: {self.last_words()}") from error
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            self.agent.settimeout(left)
            try:
                more = self.agent.recv(1 << 16)
            except TimeoutError:
                break
            except OSError:
                more = b""
            if not more:
                raise MachineTrouble(f"qemu has ended: {self.last_words()}")
            *lines, self.received = (self.received + more).split(b"\n")
            for answer in map(json.loads, filter(None, lines)):
                if answer.get("id") == self.asked:
                    if "error" in answer:
                        raise MachineTrouble(f"the agent refuses {name}: {answer['error']}")
                    return answer["return"]
        raise MachineTrouble(f"no answer to {name} within {within} s: {self.last_words()}")

    def last_words(self) -> str:
        return self.console.read_text(errors="replace")[-2000:] if self.console.exists() else ""

    def run(self, script: str, within: float = COMMAND_SECONDS) -> tuple[int, str]:
        """The exit status of a shell's script, as root, and what it printed."""
        until = time.monotonic() + within
        words = {"path": "/bin/bash", "arg": ["-c", f"exec 2>&1; cd /root; {script}"], "env": [f"PATH={PATH}", "HOME=/root", "LC_ALL=C.UTF-8"]}
        pid = self.ask("guest-exec", 60, **words, **{"capture-output": True})["pid"]
        while time.monotonic() < until:
            status = self.ask("guest-exec-status", 60, pid=pid)
            if status["exited"]:
                said = base64.b64decode(status.get("out-data", "")).decode(errors="replace").strip()
                return status.get("exitcode", 128 + status.get("signal", 0)), said
            time.sleep(0.2)
        raise MachineTrouble(f"{script!r} is not done after {within} s")

    def must(self, script: str, within: float = COMMAND_SECONDS) -> str:
        status, said = self.run(script, within)
        if status != 0:
            raise MachineTrouble(f"{script!r} ends with {status}: {said[-3000:]}")
        return said

    def write(self, path: str, text: str, mode: str = "644") -> None:
        self.must(f"install -D -m {mode} /dev/stdin {shlex.quote(path)} <<'END OF FILE'\n{text}\nEND OF FILE")

    def boot_id(self) -> str:
        return self.must("cat /proc/sys/kernel/random/boot_id", 60)

    def await_boot(self) -> None:
        """Until the boot has come to its end, whether all its units have started or not."""
        until = time.monotonic() + BOOT_SECONDS
        try:
            self.ask("guest-ping", BOOT_SECONDS)
            self.run("systemctl is-system-running --wait", max(60, until - time.monotonic()))
        except MachineTrouble:
            self.end()
            raise

    def reboot(self) -> None:
        """By the guest itself: its last act ends the process."""
        former = self.boot_id()
        try:
            self.run("systemctl --no-block reboot", 60)
        except MachineTrouble:
            pass  # It may be gone before the agent tells; if it is not, that is seen now.
        try:
            self.qemu.wait(BOOT_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise MachineTrouble(f"no end of the boot before: {self.last_words()}") from late
        if self.qemu.returncode != 0:
            raise MachineTrouble(f"qemu ended with {self.qemu.returncode}")
        self.boot()
        if self.boot_id() == former:
            raise MachineTrouble("it has not booted")
