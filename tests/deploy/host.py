#!/usr/bin/env python3
"""Runs deploy/host/tune.sh over a made-up tree of a host with NICs, and over the real /proc of a network namespace; loads the firewall's
rules in two namespaces, and knocks at the ports.

    host.py DIR      in a mount and a network namespace of its own (run.sh makes them)

Prints what is wrong and exits 1."""

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
TUNE = ROOT / "deploy/host/tune.sh"
FIREWALL = ROOT / "deploy/host/verbs3.nft"

# Answers as ethtool does, out of a file for each device, and changes it.
ETHTOOL = """\
#!/bin/sh
state=$STATE/$2; mkdir -p "$state"
of() { cat "$state/$1" 2>/dev/null || echo "$2"; }
case $1 in
    -g) printf 'Ring parameters for %s:\\nPre-set maximums:\\nRX:\\t\\t8192\\nRX Mini:\\tn/a\\nTX:\\t\\t16384\\nCurrent hardware settings:\\nRX:\\t\\t%s\\nRX Mini:\\tn/a\\nTX:\\t\\t%s\\n' "$2" "$(of rx 1024)" "$(of tx 1024)" ;;
    -c) printf 'Coalesce parameters for %s:\\nAdaptive RX: %s  TX: off\\n' "$2" "$(of adaptive-rx off)" ;;
    -k) printf 'Features for %s:\\ntcp-segmentation-offload: on\\ngeneric-receive-offload: %s\\n' "$2" "$(of generic-receive-offload off)" ;;
    -a) printf 'Pause parameters for %s:\\nAutonegotiate:\\toff\\nRX:\\t\\ton\\nTX:\\t\\ton\\n' "$2" ;;
    -G|-C|-K) echo "$4" >"$state/$3" ;;
    *) exit 1 ;;
esac
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def host(root: Path) -> None:
    """A host with a RoCE port and two of InfiniBand: one whose IPoIB is the NIC's, and an older one."""
    for number, (device, dev, driver, kind) in enumerate((("mlx5_0", "ens1f0np0", "mlx5_core", "1"), ("mlx5_1", "ib0", "mlx5_core", "32"), ("mlx4_0", "ib1", "mlx4_core", "32"))):
        card = root / f"sys/devices/pci/{number}"
        put(card / "numa_node", "0")
        put(card / "local_cpulist", "0-1,4")
        (card / "net" / dev).mkdir(parents=True)
        (root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (card / "driver").symlink_to(f"../../../drivers/{driver}")
        put(root / f"sys/class/infiniband/{device}/ports/1/link_layer", "InfiniBand" if kind == "32" else "Ethernet")
        (root / f"sys/class/infiniband/{device}/device").symlink_to(f"../../../devices/pci/{number}")
        put(root / f"sys/class/net/{dev}/type", kind)
        put(root / f"sys/class/net/{dev}/mtu", "2044" if kind == "32" else "1500")
        if kind == "32":
            put(root / f"sys/class/net/{dev}/mode", "datagram")
        for name in ("arp_ignore", "arp_announce", "rp_filter"):
            put(root / f"proc/sys/net/ipv4/conf/{dev}/{name}", "0")
    for irq, now in ((40, "7"), (41, "1"), (42, "0-7")):
        put(root / f"sys/devices/pci/0/msi_irqs/{irq}", "msix")
        put(root / f"proc/irq/{irq}/smp_affinity_list", now)
    for name, now in (("enabled", "always madvise [never]"), ("shmem_enabled", "always within_size advise [never] deny force")):
        put(root / f"sys/kernel/mm/transparent_hugepage/{name}", now)
    for name in re.findall(r"^(?:SYSCTLS='.*\n)?([a-z][\w.]+) = ", TUNE.read_text(), re.M):
        put(root / "proc/sys" / name.replace(".", "/"), "0" if "numa" not in name else "1")
    put(root / "proc/sys/vm/nr_hugepages", "0")
    for cpu in range(2):
        put(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave")
    put(root / "sys/devices/system/cpu/intel_pstate/no_turbo", "1")
    for module in ("ib_uverbs", "rdma_ucm", "mlx5_ib", "mlx4_ib", "ib_ipoib"):
        (root / "sys/module" / module).mkdir(parents=True)
    put(root / "usr/lib/systemd/system/containerd.service", "")
    (root / "run/irqbalance").mkdir(parents=True)


def tune(root: Path | None, programs: Path, *words: str) -> tuple[int, list[list[str]]]:
    """Its exit status, and its lines in three parts."""
    command = [TUNE, *words, *(["--root", root] if root else [])]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin", "STATE": str(programs / "state")})
    if done.stderr:
        raise AssertionError(f"tune.sh {words}: {done.stderr}")
    return done.returncode, [line.split(maxsplit=2) for line in done.stdout.splitlines()]


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def made_up(folder: Path) -> list[str]:
    root, programs = folder / "root", folder / "programs"
    host(root)
    put(programs / "ethtool", ETHTOOL)
    (programs / "ethtool").chmod(0o755)
    wrong, before = [], tree(root)
    words = ("--huge-pages", "1024")
    status, lines = tune(root, programs, "--check", *words)
    groups = {line[1] for line in lines if line[0] == "differs"}
    every = {"memlock", "sysctl", "huge", "links", "rings", "irqs", "power", "boot", "modules"}
    if status != 1 or groups != every:
        wrong.append(f"a host that nobody tuned: {status}, {sorted(every ^ groups)}")
    if tree(root) != before:
        wrong.append("--check changes something")
    status, lines = tune(root, programs, "--apply", *words)
    if status != 0 or any(line[0] in ("differs", "failed") for line in lines):
        wrong.append(f"--apply: {status}: {[line for line in lines if line[0] in ('differs', 'failed')]}")
    status, lines = tune(root, programs, "--check", *words)
    if status != 0:
        wrong.append(f"after --apply there differs {[line for line in lines if line[0] == 'differs']}")
    if not {("advice", "rings"), ("advice", "irqs")} <= {(line[0], line[1]) for line in lines}:
        wrong.append("global pause and irqbalance are not spoken of")
    after = tree(root)
    # THP's files show what may be chosen, and a made-up one what was written last.
    expected = {
        "sys/class/net/ens1f0np0/mtu": "9000", "sys/class/net/ib0/mode": "datagram\n", "sys/class/net/ib0/mtu": "2044\n",
        "sys/class/net/ib1/mode": "connected", "sys/class/net/ib1/mtu": "65520", "proc/irq/40/smp_affinity_list": "0",
        "proc/irq/41/smp_affinity_list": "1\n", "proc/irq/42/smp_affinity_list": "4", "proc/sys/net/core/rmem_max": "134217728",
        "proc/sys/kernel/numa_balancing": "0", "proc/sys/vm/nr_hugepages": "1024", "sys/kernel/mm/transparent_hugepage/shmem_enabled": "advise",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance", "proc/sys/net/ipv4/conf/ib1/arp_ignore": "1",
        "etc/modules-load.d/verbs3.conf": "ib_uverbs\nrdma_ucm\nmlx4_ib\nib_ipoib\nmlx5_ib\n",
    }
    wrong += [f"{name}: {after.get(name)!r}, not {value!r}" for name, value in expected.items() if after.get(name) != value]
    kept = {"etc/security/limits.d/90-verbs3.conf": "memlock unlimited", "etc/systemd/system/containerd.service.d/90-verbs3-memlock.conf": "LimitMEMLOCK=infinity",
            "etc/sysctl.d/90-verbs3.conf": "net.core.rmem_max = 134217728", "etc/sysctl.d/91-verbs3-huge.conf": "vm.nr_hugepages = 1024",
            "etc/sysctl.d/92-verbs3-rails.conf": "net.ipv4.conf.ens1f0np0.rp_filter = 2", "etc/tmpfiles.d/90-verbs3.conf": "shmem_enabled - - - - advise",
            "etc/udev/rules.d/90-verbs3.rules": 'NAME=="", KERNEL=="ib1", ATTR{mode}="connected"',
            "etc/systemd/system/verbs3-host.service": "ExecStart=/usr/local/sbin/verbs3-tune --apply --at-boot --huge-pages 1024"}
    wrong += [f"{name} does not keep {text}" for name, text in kept.items() if text not in after.get(name, "")]
    if tune(root, programs, "--apply", *words)[0] != 0 or tree(root) != after:
        wrong.append("a second --apply changes something")
    # A device that is gone at one boot takes nothing along.
    (root / "sys/class/infiniband/mlx4_0").rename(root / "mlx4_0")
    status, lines = tune(root, programs, "--apply", "--at-boot", *words)
    if status != 0 or any((root / name).read_text() != after[name] for name in kept):
        wrong.append(f"--at-boot writes files: {status}: {lines}")
    (root / "mlx4_0").rename(root / "sys/class/infiniband/mlx4_0")
    put(root / "proc/sys/net/core/rmem_max", "1")
    if tune(root, programs, "--check", *words)[0] != 1 or tune(root, programs, "--check", "--only", "links", *words)[1] == lines:
        wrong.append("a setting that is lost goes unnoticed, or --only is not obeyed")
    done = subprocess.run(["systemd-analyze", "verify", root / "etc/systemd/system/verbs3-host.service"], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "not executable" not in line]
    if shutil.which("systemd-analyze") and said:
        wrong.append(f"verbs3-host.service: {said}")
    tune(root, programs, "--remove")
    left = [name for name in (*kept, "etc/modules-load.d/verbs3.conf", "usr/local/sbin/verbs3-tune") if (root / name).exists()]
    if left:
        wrong.append(f"--remove leaves {left}")
    for words in (("--check", "--nonsense"), ("--only", "links"), ("--check", "--mtu", "much")):
        if subprocess.run([TUNE, *words], capture_output=True).returncode != 2:
            wrong.append(f"tune.sh {words} is taken")
    return wrong


def real(folder: Path) -> list[str]:
    """Sysctls of this network namespace: the kernel takes what is wanted, in its own notation."""
    root = folder / "real"
    (root / "sys").mkdir(parents=True)
    (root / "proc").symlink_to("/proc")
    # The machine's own, which no namespace has.
    put(root / "one", "0")
    subprocess.run(["mount", "--bind", root / "one", "/proc/sys/kernel/numa_balancing"], check=False, capture_output=True)
    tune(root, folder, "--apply", "--only", "sysctl")
    status, lines = tune(root, folder, "--check", "--only", "sysctl")
    values = {line[2].split(" = ")[0] for line in lines if line[0] == "ok" and line[2].startswith("/proc")}
    wanted = {f"/proc/sys/net/ipv4/{name}" for name in ("tcp_rmem", "tcp_wmem", "tcp_mtu_probing", "tcp_slow_start_after_idle")}
    return [f"a network namespace does not take {sorted(wanted - values)}: {lines}"] if not wanted <= values else []


def knock(address: str, port: int, source: str) -> bool:
    """Whether a connection is answered at all: a refusal is an answer."""
    with socket.socket() as one:
        one.settimeout(1)
        one.bind((source, 0))
        try:
            one.connect((address, port))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True


def firewall(folder: Path) -> list[str]:
    """Over a pair of devices into another namespace, from an address of each network."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    other = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    wrong = []
    try:
        here = os.stat("/proc/self/ns/net").st_ino
        while os.stat(f"/proc/{other.pid}/ns/net").st_ino == here:
            time.sleep(0.05)
        inside = ["nsenter", "--target", str(other.pid), "--net"]
        sources = {"nodes": "10.0.7.7", "monitoring": "10.1.0.7", "coordinators": "10.0.0.2", "stranger": "192.168.77.7"}
        for words in (["ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(other.pid)],
                      *(["ip", "address", "add", f"{one}/8" if one.startswith("10.") else f"{one}/24", "dev", "here"] for one in sources.values()),
                      ["ip", "link", "set", "here", "up"],
                      [*inside, "ip", "address", "add", "10.9.9.9/8", "dev", "there"], [*inside, "ip", "address", "add", "192.168.77.1/24", "dev", "there"],
                      [*inside, "ip", "link", "set", "there", "up"], [*inside, "nft", "-f", str(FIREWALL)], [*inside, "nft", "-f", str(FIREWALL)]):
            subprocess.run(words, check=True)
        open_to = {"nodes": {9400, 9403, 9410, 9500}, "monitoring": {9001, 9401, 9501, 9601, 9701, 2381}, "coordinators": {2379, 2380, 9400, 9403, 9410, 9500}, "stranger": set()}
        ports = set().union(*open_to.values()) | {9000, 9600}
        for who, source in sources.items():
            address = "10.9.9.9" if source.startswith("10.") else "192.168.77.1"
            if not knock(address, 22, source):
                wrong.append(f"{who} does not reach a port that is none of ours")
            seen = {port for port in ports if knock(address, port, source)}
            if seen != open_to[who]:
                wrong.append(f"{who} reaches {sorted(seen)}, and should reach {sorted(open_to[who])}")
    finally:
        other.kill()
        other.wait()
    listed = set(map(int, re.findall(r"^\| (\d+) \| tcp", (ROOT / "docs/host-tuning.md").read_text(), re.M))) - {18515}
    if listed | {9403} != ports:
        wrong.append(f"docs/host-tuning.md lists {sorted(listed)}, the firewall has {sorted(ports)}")
    return wrong


def main(folder: Path) -> list[str]:
    wrong = made_up(folder) + real(folder) + firewall(folder)
    print("host: tune.sh over a made-up host and over a real namespace, the firewall over two")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 1)
