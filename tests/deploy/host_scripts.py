#!/usr/bin/env python3
"""Runs hardware.sh, traffic.sh and maintain.sh of deploy/host over a made-up tree of a host, with programs that answer as a script of
theirs says and note what they were asked.

    host_scripts.py VERBS3 DIR      VERBS3: the built binary, which looks at this host once; DIR takes the tree

Prints what is wrong and exits 1."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy/host"

# Notes its words, and answers by the file $STATE/NAME if there is one: a shell's lines, which see the words.
FAKE = """\
#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$STATE/asked"
[ ! -e "$STATE/$name" ] || . "$STATE/$name"
"""
PROGRAMS = ("verbs3", "systemctl", "curl", "devlink", "rdma", "ip", "ss", "journalctl", "sleep")


class MadeHost:
    """A host with two NICs of two ports' cards, a drive, two NUMA nodes, and programs."""

    def __init__(self, folder: Path) -> None:
        self.root, self.state, self.programs = folder / "root", folder / "state", folder / "programs"
        for place in (self.root, self.state, self.programs):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
        for name in PROGRAMS:
            (self.programs / name).write_text(FAKE)
            (self.programs / name).chmod(0o755)
        for number, device in enumerate(("mlx5_0", "mlx5_1")):
            card = f"sys/devices/pci0000:00/0000:3b:00.{number}"
            self.put(f"{card}/numa_node", "0")
            self.link(card, "32.0 GT/s PCIe", "16")
            for kind in ("correctable", "nonfatal", "fatal"):
                self.put(f"{card}/aer_dev_{kind}", "RxErr 0\nTOTAL_ERR_COR 0")
            port = f"sys/class/infiniband/{device}/ports/1"
            for name, text in {"rate": "200 Gb/sec (4X HDR)", "state": "4: ACTIVE", "link_layer": "Ethernet",
                               "counters/port_rcv_data": "1000", "counters/port_xmit_data": "1000"}.items():
                self.put(f"{port}/{name}", text)
            (self.root / f"sys/class/infiniband/{device}/device").symlink_to(self.root / card)
        self.link("sys/devices/nvme", "16.0 GT/s PCIe", "4")
        (self.root / "sys/class/nvme/nvme0").mkdir(parents=True)
        (self.root / "sys/class/nvme/nvme0/device").symlink_to(self.root / "sys/devices/nvme")
        for node in range(2):
            self.put(f"sys/devices/system/node/node{node}/cpulist", f"{node * 8}-{node * 8 + 7}")
            self.put(f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:       {263_000_000 - node * 2_000_000} kB")
        self.put("sys/devices/system/edac/mc/mc0/ce_count", "0")
        self.put("sys/devices/system/edac/mc/mc0/ue_count", "0")
        for dev, kind in (("eth0", "1"), ("ib0", "32"), ("lo", "772")):
            self.put(f"sys/class/net/{dev}/type", kind)
            self.put(f"sys/class/net/{dev}/statistics/rx_bytes", "0")
            self.put(f"sys/class/net/{dev}/statistics/tx_bytes", "0")
        self.put("etc/verbs3/worker.env", "VERBS3_WORKER__ID=gpu-07")

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def link(self, place: str, speed: str, width: str) -> None:
        for name, text in {"current_link_speed": speed, "max_link_speed": speed, "current_link_width": width, "max_link_width": width}.items():
            self.put(f"{place}/{name}", text)

    def answers(self, program: str, lines: str) -> None:
        (self.state / program).write_text(lines)

    def has_real(self, verbs3: Path) -> None:
        """The binary itself in place of its stand-in, with what deploy/systemd gives a worker's host."""
        program = self.programs / "verbs3"
        program.unlink()
        program.symlink_to(verbs3)
        shipped = (ROOT / "deploy/systemd/verbs3.toml").read_text().replace("64GiB", "16MiB")
        self.put("etc/verbs3/worker.toml", shipped.replace("/etc/verbs3/", f"{self.root}/etc/verbs3/"))
        self.put("etc/verbs3/cluster-secret", "a secret of the scripts' test, long enough")

    def run(self, script: str, *words: str) -> tuple[int, str]:
        """Exit status, and all that it says."""
        (self.state / "asked").write_text("")
        env = {"PATH": f"{self.programs}:{os.environ['PATH']}", "STATE": str(self.state), "TREE": str(self.root)}
        done = subprocess.run([SCRIPTS / script, *words, "--root", self.root], capture_output=True, text=True, env=env)
        return done.returncode, done.stdout + done.stderr

    def asked(self) -> list[str]:
        return (self.state / "asked").read_text().splitlines()


def expect(what: str, got: tuple[int, str], status: int, *texts: str) -> list[str]:
    wrong = [f"{what}: exit status {got[0]}, wanted {status}: {got[1]}"] if got[0] != status else []
    return wrong + [f"{what}: {text!r} is not in {got[1]}" for text in texts if text not in got[1]]


def hardware(host: MadeHost) -> list[str]:
    wrong = expect("a host that is well", host.run("hardware.sh"), 0, "mlx5_0 32.0 GT/s x16, 504 Gb/s", "mlx5_0, mlx5_1: ports of 400 Gb/s behind 504 Gb/s",
                   "nvme0 16.0 GT/s x4", "mlx5_1 is on NUMA node 0, CPUs 0-7", "248 to 250 GiB")
    card, pci = "sys/devices/pci0000:00/0000:3b:00.0", "sys/devices/pci0000:00/0000:3b:00"
    # What is broken, and what is said of it.
    for name, text, said in ((f"{card}/current_link_width", "8", "could be 32.0 GT/s x16"),
                             ("sys/devices/nvme/current_link_speed", "8.0 GT/s PCIe", "nvme0 8.0 GT/s x4, could be 16.0 GT/s x4"),
                             (f"{card}/aer_dev_correctable", "RxErr 7\nTOTAL_ERR_COR 7", "counted 7 PCIe errors (correctable)"),
                             (f"{card}/numa_node", "-1", "mlx5_0 is on no NUMA node"),
                             ("sys/devices/system/edac/mc/mc0/ce_count", "3", "3 corrected errors"),
                             ("sys/devices/system/edac/mc/mc0/ue_count", "1", "1 errors that could not be corrected"),
                             ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 131000000 kB", "between 124 and 250 GiB")):
        before = (host.root / name).read_text()
        host.put(name, text)
        wrong += expect(f"hardware.sh, {name} = {text}", host.run("hardware.sh"), 1, said)
        (host.root / name).write_text(before)
    # Both cards trained as they can, and that is too slow for their ports.
    for number in range(2):
        host.link(f"{pci}.{number}", "16.0 GT/s PCIe", "16")
    wrong += expect("ports faster than PCIe", host.run("hardware.sh"), 1, "ports of 400 Gb/s behind 252 Gb/s")
    wrong += expect("one port of the two", host.run("hardware.sh", "--devices", "mlx5_1"), 0, "mlx5_1: ports of 200 Gb/s behind 252 Gb/s")
    wrong += expect("a device that is not there", host.run("hardware.sh", "--devices", "mlx5_9"), 1, "mlx5_9 is not there")
    return wrong + expect("a word that is none", host.run("hardware.sh", "--nonsense"), 2)


def traffic(host: MadeHost) -> list[str]:
    """`sleep` lets bytes pass: in 5 s, 100 MiB/s into mlx5_0 and 10 MiB/s out of eth0."""
    rdma, eth = "$TREE/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "$TREE/sys/class/net/eth0/statistics/tx_bytes"
    host.answers("sleep", f"echo $(($(cat {rdma}) + $1 * 26214400)) >{rdma}; echo $(($(cat {eth}) + $1 * 10485760)) >{eth}\n")
    host.answers("ss", "echo '0 0 10.0.0.7:52100 10.0.0.8:9400'; echo '0 0 10.0.0.7:9400 10.0.0.9:41000'\n")
    got = host.run("traffic.sh", "--expect", "mlx5_0,eth0")
    wrong = expect("traffic.sh", got, 0, "10.0.0.7         2 connections")
    lines = {tuple(line.split()) for line in got[1].splitlines()}
    for line in (("rdma", "mlx5_0/1", "Ethernet", "100.0", "0.0"), ("rdma", "mlx5_1/1", "Ethernet", "0.0", "0.0"), ("net", "eth0", "Ethernet", "0.0", "10.0"), ("net", "ib0", "IPoIB", "0.0", "0.0")):
        if line not in lines:
            wrong.append(f"traffic.sh does not say {line}: {got[1]}")
    if " lo " in got[1]:
        wrong.append("traffic.sh counts lo")
    wrong += expect("a rail that is idle", host.run("traffic.sh", "--expect", "mlx5_0/1,mlx5_1"), 1, "less than 1 MiB/s: mlx5_1\n")
    wrong += expect("more than there is", host.run("traffic.sh", "--expect", "eth0", "--least", "11"), 1, "less than 11 MiB/s: eth0")
    (host.root / "sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data").unlink()
    wrong += expect("a driver without counters", host.run("traffic.sh"), 0, "mlx5_1/1         its driver counts no bytes")
    return wrong + expect("no time", host.run("traffic.sh", "--seconds", "0"), 2)


def maintenance(host: MadeHost) -> list[str]:
    begin = ["verbs3 status --config /etc/verbs3/worker.toml", "verbs3 worker drain gpu-07 --wait --config /etc/verbs3/worker.toml", "systemctl stop verbs3@worker", "systemctl stop verbs3@gateway"]
    wrong = expect("begin", host.run("maintain.sh", "begin"), 0)
    # In this order, whatever is asked in between.
    wrong += [f"begin asked {host.asked()}"] if [line for line in host.asked() if line in begin] != begin else []
    host.answers("verbs3", '[ "$1" != status ] || exit 1\n')
    wrong += expect("begin in a cluster that is not well", host.run("maintain.sh", "begin"), 1, "the cluster is not well")
    wrong += [f"it was begun all the same: {host.asked()}"] if any("drain" in line or "stop" in line for line in host.asked()) else []
    wrong += expect("begin all the same", host.run("maintain.sh", "begin", "--anyway"), 0)
    host.answers("verbs3", '[ "$2" != drain ] || exit 1\n')
    wrong += expect("a drain that fails", host.run("maintain.sh", "begin"), 1)
    wrong += ["units are stopped though the drain failed"] if any("stop" in line for line in host.asked()) else []
    (host.state / "verbs3").unlink()

    wrong += expect("end, where tune.sh has something to say", host.run("maintain.sh", "end"), 1, "tune.sh is not content")
    wrong += ["units are started though the host is not content"] if any("start" in line for line in host.asked()) else []
    host.answers("curl", "n=$(cat $STATE/tries 2>/dev/null || echo 0); echo $((n + 1)) >$STATE/tries; [ $n -ge 3 ]\n")
    wrong += expect("end", host.run("maintain.sh", "end", "--anyway"), 0, "worker gpu-07 serves: yes", "the gateway serves: yes")
    order = [line for line in host.asked() if line.startswith(("systemctl start", "verbs3 worker"))]
    if order != ["systemctl start verbs3@worker", "verbs3 worker undrain gpu-07 --config /etc/verbs3/worker.toml", "systemctl start verbs3@gateway"]:
        wrong.append(f"end asked {order}")
    host.answers("curl", "exit 1\n")
    wrong += expect("a worker that does not come", host.run("maintain.sh", "end", "--anyway", "--wait", "3"), 1, "worker gpu-07 serves: not within 3 s")
    (host.root / "etc/verbs3/worker.env").unlink()
    wrong += expect("a worker without a name", host.run("maintain.sh", "begin"), 1, "this worker's id is not known")
    for words in ((), ("begin", "end"), ("collect",), ("reset",), ("begin", "--wait", "soon"), ("begin", "--nonsense")):
        wrong += expect(f"maintain.sh {words}", host.run("maintain.sh", *words), 2)
    return wrong


def faults(host: MadeHost, folder: Path) -> list[str]:
    """What is collected of a fault, and the reset of a NIC."""
    host.answers("curl", "echo 'verbs3_verbs_rail_up{index=\"0\",name=\"mlx5_0\"} 1'; echo 'verbs3_verbs_rail_up{index=\"1\",name=\"mlx5_1\"} 1'\n")
    host.answers("rdma", '[ "$1" != system ] || exit 3\n')
    kept = folder / "kept.tar.gz"
    wrong = expect("collect", host.run("maintain.sh", "collect", str(kept)), 0)
    with tarfile.open(kept) as tar:
        names = {Path(name).name for name in tar.getnames()}
        failed = tar.extractfile(next(name for name in tar.getnames() if name.endswith("/rdma-system"))).read().decode()
    missing = {"doctor.json", "status.json", "metrics-worker", "journal", "kernel", "rdma-resource-show-mr", "rdma-statistic-show", "sockets", "hardware", "tune"} - names
    if missing or "[exit status 3: rdma system]" not in failed:
        wrong.append(f"collect lacks {missing}, or says {failed!r} of what failed")

    port = "$TREE/sys/class/infiniband/mlx5_0/ports/1/state"
    host.answers("devlink", f"echo '2: INIT' >{port}; echo 0 >$STATE/slept\n")
    host.answers("sleep", f"n=$(($(cat $STATE/slept) + 1)); echo $n >$STATE/slept; [ $n -lt 3 ] || echo '4: ACTIVE' >{port}\n")
    wrong += expect("reset", host.run("maintain.sh", "reset", "mlx5_0"), 0, "2 rails are open, 1 other ports are up", "the port of mlx5_0 is active: yes", "2 rails are open: yes")
    wrong += [f"reset asked {host.asked()}"] if "devlink dev reload pci/0000:3b:00.0" not in host.asked() else []
    host.answers("devlink", "echo 'verbs3_verbs_rail_up 1' >$STATE/metrics\n")
    host.answers("curl", "cat $STATE/metrics 2>/dev/null || echo 'verbs3_verbs_rail_up 2'\n")
    wrong += expect("a rail that does not return", host.run("maintain.sh", "reset", "mlx5_0", "--wait", "2"), 1, "2 rails are open: not within 2 s")
    host.put("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    wrong += expect("the only port", host.run("maintain.sh", "reset", "mlx5_0"), 1, "mlx5_0 is the only port that is up")
    wrong += ["the only port was reset"] if any("devlink" in line for line in host.asked()) else []
    return wrong + expect("a device that is not there", host.run("maintain.sh", "reset", "mlx5_9"), 1, "there is no RDMA device mlx5_9")


def real_doctor(host: MadeHost, verbs3: Path, folder: Path) -> list[str]:
    """Whether the binary takes what `end` and `collect` give it; no coordinator is there."""
    host.has_real(verbs3)
    config = str(host.root / "etc/verbs3/worker.toml")
    wrong = expect("end with the real doctor", host.run("maintain.sh", "end", "--anyway", "--config", config), 0, "worker.memory.capacity is 16 MiB", "no coordinator answers")
    kept = folder / "real.tar.gz"
    wrong += expect("collect with the real doctor", host.run("maintain.sh", "collect", str(kept), "--config", config), 0)
    with tarfile.open(kept) as tar:
        said = tar.extractfile(next(name for name in tar.getnames() if name.endswith("/doctor.json"))).read().decode()
    return wrong if '"findings"' in said and "exit status 2" not in said else [*wrong, f"collect kept {said!r} of doctor"]


def main(verbs3: Path, folder: Path) -> list[str]:
    wrong = hardware(MadeHost(folder)) + traffic(MadeHost(folder)) + maintenance(MadeHost(folder)) + faults(MadeHost(folder), folder)
    wrong += real_doctor(MadeHost(folder), verbs3, folder)
    print("host scripts: hardware.sh, traffic.sh and maintain.sh over a made-up host")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 2)
