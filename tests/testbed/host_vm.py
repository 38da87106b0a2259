#!/usr/bin/env python3
"""A host's life in a virtual machine with Debian's systemd and kernel: our package is installed, tune.sh looks and tunes, the machine
reboots, the units start by themselves and answer, the package is removed and purged.

    host_vm.py DISK DEB DIR      DISK of host-disk.sh; DIR/not-proven takes what such a machine does not have

Prints what is wrong and exits 1."""

import re
import sys
import time
from pathlib import Path

import boto3
from booted_machine import BootedMachine, MachineTrouble
from botocore.config import Config
from client import ACCESS_KEY, IDENTITIES, SECRET_KEY
from verdict import judge

EXAMPLES = "/usr/share/doc/verbs3/examples"
# A copy, since it is needed where the package is no more.
TUNE = "/root/tune.sh"
# Transparent huge pages are off at boot, as some databases ask for it.
KERNEL_WORDS = "transparent_hugepage=never"
TUNED = ("--huge-pages", "16")
STORE = "127.0.0.1:7480"
UNITS = ("verbs3-etcd.service", "verbs3@coordinator.service", "verbs3@worker.service", "verbs3@gateway.service")
DROPPED, REFUSED = 28, 7
NOT_PROVEN = """\
tune.sh on a real host: mode and MTU of IPoIB, adaptive coalescing, governor and turbo were not there to be set (host-vm)
tune.sh on a real host: drivers of NICs in modules-load.d were not there to be named (host-vm)
"""

SETUP = f"""\
set -e
cp {EXAMPLES}/host/tune.sh {TUNE}
useradd --create-home somebody
printf '127.0.0.1 coordinator-0 gpu-01\\n' >>/etc/hosts
umask 077
openssl rand -hex 32 >cluster-secret
{EXAMPLES}/certificates.sh pki coordinator-0
umask 022
install -m 640 -g verbs3 cluster-secret identities.toml -t /etc/verbs3
install -D -m 640 -g etcd pki/ca.crt pki/members.crt pki/members.key -t /etc/verbs3/etcd
install -D -m 640 -g verbs3 pki/ca.crt pki/coordinators.crt pki/coordinators.key -t /etc/verbs3/etcd-client
sed 's/^\\(ETCD_INITIAL_CLUSTER=[^,]*\\),.*/\\1/' {EXAMPLES}/etcd.env >/etc/verbs3/etcd.env
for role in coordinator worker; do cp -r {EXAMPLES}/verbs3@$role.service.d /etc/systemd/system/; done
sed -i -e 's/^coordinators = .*/coordinators = ["http:\\/\\/coordinator-0:9500"]/' -e 's/^endpoints = .*/endpoints = ["https:\\/\\/coordinator-0:2379"]/' \\
    -e 's/^endpoint = .*/endpoint = "http:\\/\\/{STORE}"/' -e 's/64GiB/128MiB/' /etc/verbs3/verbs3.toml
for role in coordinator worker gateway; do ln -s verbs3.toml /etc/verbs3/$role.toml; done
echo VERBS3_WORKER__ID=gpu-01 >/etc/verbs3/worker.env
systemctl enable --now store
until [ -e /srv/store/ready ]; do sleep 0.5; done
{{ echo '[default]'; sed -n -e 's/^access_key = "\\(.*\\)"/aws_access_key_id = \\1/p' -e 's/^secret_key = "\\(.*\\)"/aws_secret_access_key = \\1/p' /srv/store/identities.toml | head -n 2; }} >credentials
install -m 640 -g verbs3 credentials -t /etc/verbs3
systemctl disable --now etcd
systemctl enable --now verbs3-etcd verbs3@coordinator verbs3-gateway.socket verbs3@worker verbs3@gateway
cp {EXAMPLES}/host/verbs3.nft /etc/verbs3.nft
echo 'include "/etc/verbs3.nft"' >>/etc/nftables.conf
systemctl enable nftables
"""

# Another host on a wire of its own, which speaks from the address of whoever it is told to be.
NEIGHBOUR = """\
set -e
ip netns add neighbour
ip link add here type veth peer name there netns neighbour
ip address add 10.9.9.9/8 dev here; ip address add 192.168.77.1/24 dev here; ip link set here up
ip -n neighbour link set there up
for one in 10.0.7.7/8 10.1.0.7/8 192.168.77.7/24; do ip -n neighbour address add $one dev there; done
"""
# Who, its address, ours, and what it reaches of what listens here.
KNOCKS = (("a node", "10.0.7.7", "10.9.9.9", {9400, 9500, 22}), ("monitoring", "10.1.0.7", "10.9.9.9", {9401, 9501, 22}), ("a stranger", "192.168.77.7", "192.168.77.1", {22}))


class HostStory:
    """What goes wrong is noted, and the story goes on."""

    def __init__(self, machine: BootedMachine) -> None:
        self.machine, self.wrong = machine, []
        client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name="us-east-1",
                              config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))
        words = {"Params": {"Bucket": "demo", "Key": "kept"}, "ExpiresIn": 7200}
        self.put, self.get = (client.generate_presigned_url(name, **words) for name in ("put_object", "get_object"))

    def hold(self, what: str, holds: bool, said: object = "") -> None:
        print(f"host-vm: {'held' if holds else 'NOT HELD'}: {what}{'' if holds else f': {said}'}", flush=True)
        if not holds:
            self.wrong.append(f"{what}: {said}")

    def same(self, what: str, script: str, expected: str) -> None:
        said = self.machine.run(script)[1]
        self.hold(what, said == expected, f"{said!r}, not {expected!r}")

    def tune(self, *words: str) -> tuple[int, list[list[str]]]:
        status, said = self.machine.run(f"{TUNE} {' '.join((*words, *TUNED))}")
        return status, [line.split(maxsplit=2) for line in said.splitlines()]

    def differing(self) -> set[str]:
        return {line[1] for line in self.tune("--check")[1] if line[0] not in ("ok", "note", "advice")}

    def tuned(self, when: str) -> None:
        status, lines = self.tune("--check")
        self.hold(f"{when}, tune.sh --check finds nothing", status == 0 and {line[0] for line in lines} <= {"ok", "note", "advice"},
                  [line for line in lines if line[0] not in ("ok", "note", "advice")])

    def served(self, when: str) -> str:
        """Reads what was written before, and tells by which transport it came from the worker."""
        until = time.monotonic() + 240
        while self.machine.run("curl -sf -o /dev/null http://127.0.0.1:9001/readyz && curl -sf -o /dev/null http://127.0.0.1:9401/readyz")[0] != 0:
            if time.monotonic() > until:
                raise MachineTrouble(f"{when}: the gateway is not ready: {self.machine.run('journalctl -b --no-pager -n 60 -u verbs3*')[1]}")
            time.sleep(1)
        status, said = self.machine.run(f"for i in 1 2; do curl -sS -f -o got -w '%{{http_code}} %header{{x-verbs3-transport}}\\n' '{self.get}' || exit; cmp got body || exit; done")
        self.hold(f"{when}, a GET through the gateway has the object's bytes", status == 0, said)
        return said.splitlines()[-1] if said else ""

    def tell_state(self) -> None:
        """What a person would look at first."""
        try:
            print(self.machine.run("systemctl list-jobs; ps -eo pid,stat,wchan:20,etime,args --sort=-start_time | grep -v '\\[' | head -n 30; journalctl -b --no-pager -n 80", 120)[1])
        except MachineTrouble as error:
            print(error)

    # ---- the parts ------------------------------------------------------------------------------------------------------

    def install(self) -> None:
        self.machine.must("dpkg -i /root/verbs3.deb")
        self.same("dpkg has installed the package", "dpkg -s verbs3 | grep ^Status", "Status: install ok installed")
        self.same("nothing of it is enabled or runs", "systemctl list-units --no-legend 'verbs3*'; find /etc/systemd -name 'verbs3*'; pgrep -u verbs3", "")
        self.machine.write("/root/identities.toml", IDENTITIES)
        self.machine.must("head -c 1048576 /dev/urandom >body")
        self.machine.must(SETUP, 600)
        self.machine.must("until curl -sf -o /dev/null http://127.0.0.1:9001/readyz; do sleep 1; done", 300)
        self.machine.must(f"curl -sS -f -T body '{self.put}'")

    def tune_it(self) -> None:
        before = self.differing()
        self.hold("tune.sh --check lists what is wrong", before == {"memlock", "sysctl", "huge", "modules", "links", "rings", "irqs", "boot"}, before)
        self.same("and changes nothing", "find /etc /usr/local -newer /root/body -name '*verbs3*' -not -path '/etc/verbs3*' -not -path '*/system/*'", "")
        status, lines = self.tune("--apply")
        self.hold("tune.sh --apply mends it", status == 0 and any(line[0] == "set" for line in lines), lines)
        self.tuned("after --apply")
        status, lines = self.tune("--apply")
        self.hold("a second --apply sets nothing", status == 0 and "set" not in {line[0] for line in lines}, [line for line in lines if line[0] == "set"])

    def settings(self) -> None:
        """What tune.sh says of itself, by other tools; and what lasts without it."""
        near, far = self.netdevs()
        for name, value in (("net.core.rmem_max", "134217728"), ("kernel.numa_balancing", "0"), ("vm.nr_hugepages", "16"), (f"net.ipv4.conf.{far}.arp_announce", "2")):
            self.same(f"{name} is {value}", f"sysctl -n {name}", value)
        for name in ("enabled", "shmem_enabled"):
            said = self.machine.run(f"cat /sys/kernel/mm/transparent_hugepage/{name}")[1]
            self.hold(f"huge pages: {name}", re.search(r"\[(\w+)\]", said)[1] == ("madvise" if name == "enabled" else "advise"), said)
        for dev in (near, far):
            self.same(f"{dev} has MTU 9000", f"cat /sys/class/net/{dev}/mtu", "9000")
        self.same(f"{far} has its largest rings", f"ethtool -g {far} | sed -n 's/^[RT]X:\\s*//p' | tr '\\n' ' '", "4096 4096 4096 4096")
        self.same(f"{far}'s interrupts are on its own NUMA node", f"cd /sys/class/net/{far}/device/msi_irqs; for i in *; do cat /proc/irq/$i/smp_affinity_list; done | sort -u", "1")
        self.same("a login may lock memory", "su -l somebody -c 'ulimit -l; ulimit -H -l' | tr '\\n' ' '", "unlimited unlimited")
        self.same("a container runtime may lock memory", self.limit("containerd.service"), "unlimited unlimited")
        self.same("modules are loaded", "for i in ib_uverbs rdma_ucm; do [ -d /sys/module/$i ] || echo $i; done", "")

    def late_device(self) -> None:
        """A driver that is bound anew: the device comes as when it is plugged, under the kernel's name at first. The kernel's soft-RoCE lets
        no device go that a process has open."""
        far = self.netdevs()[1]
        self.machine.must("systemctl stop store 'verbs3@*'; rdma link delete rxe1")
        self.machine.must(f"place=$(basename $(readlink -f /sys/class/net/{far}/device)); cd /sys/bus/pci/drivers/e1000e; echo $place >unbind; echo $place >bind; "
                          f"udevadm settle; until [ -e /sys/class/net/{far} ]; do sleep 0.2; done; udevadm settle; sleep 1")
        self.same(f"{far} has its MTU and ARP again where it comes anew", f"cat /sys/class/net/{far}/mtu /proc/sys/net/ipv4/conf/{far}/arp_ignore | tr '\\n' ' '", "9000 1")

    def netdevs(self) -> list[str]:
        return [self.machine.must(f"basename /sys/bus/{bus}/drivers/{driver}/*/net/*") for bus, driver in (("virtio", "virtio_net"), ("pci", "e1000e"))]

    @staticmethod
    def limit(unit: str) -> str:
        return f"awk '/^Max locked memory/ {{ print $4, $5 }}' /proc/$(systemctl show --value -p MainPID {unit})/limits"

    def units(self) -> None:
        for unit in UNITS:
            self.same(f"{unit} started by itself", f"systemctl is-active {unit}", "active")
            pid = f"/proc/$(systemctl show --value -p MainPID {unit})"
            self.same(f"{unit} has no right of root's", f"awk '/^(CapEff|CapBnd|NoNewPrivs|Seccomp):/ {{ print $2 }}' {pid}/status | tr '\\n' ' '", "0000000000000000 0000000000000000 1 2")
            self.same(f"{unit} may not write to the system", f"nsenter -t $(systemctl show --value -p MainPID {unit}) -m touch /usr/x /etc/verbs3/x /srv/x 2>&1 | grep -c 'Read-only file system'", "3")
            if unit != "verbs3-etcd.service":
                self.same(f"{unit} may lock memory", self.limit(unit), "unlimited unlimited")
        self.same("the gateway's port is held by its socket", "systemctl is-active verbs3-gateway.socket", "active")
        self.same("the worker has opened both devices as rails", "curl -sS http://127.0.0.1:9401/metrics | awk '/^verbs3_verbs_rail_up/ { open += $NF } END { print open + 0 }'", "2")
        self.same("no unit has failed", "systemctl --failed --no-legend", "")
        self.same("the host's settings came before the worker", "a=$(systemctl show --value -p ExecMainExitTimestampMonotonic verbs3-host); b=$(systemctl show --value -p ExecMainStartTimestampMonotonic verbs3@worker); "
                  "[ $a -gt 0 ] && [ $a -le $b ] && echo yes || echo $a $b", "yes")

    def firewall(self) -> None:
        self.machine.must(NEIGHBOUR)
        for who, source, ours, reached in KNOCKS:
            seen, ports = {}, sorted({9400, 9401, 9500, 9501, 2379, 22})
            for port, status in zip(ports, self.machine.must("; ".join(f"ip netns exec neighbour curl -s -o /dev/null --interface {source} --connect-timeout 2 --max-time 4 http://{ours}:{port}; echo $?" for port in ports)).split(), strict=True):
                seen[port] = int(status)
            self.hold(f"{who} reaches {sorted(reached)} alone", {port for port, status in seen.items() if status != DROPPED} == reached, seen)
        self.machine.must("ip netns delete neighbour")

    def removed(self) -> None:
        self.machine.must("systemctl disable --now store; dpkg -r verbs3", 600)
        self.same("after dpkg -r nothing of it runs, listens or is enabled", "pgrep -a -u verbs3; ss -Hltn | grep -E ':(9[0-9]{3}|2379|2380)\\b'; find /etc/systemd/system -path '*wants/verbs3*' -not -name verbs3-host.service; "
                  "systemctl list-units --no-legend --state=active 'verbs3*' | grep -v verbs3-host", "")
        self.same("configuration and cache are kept", "ls -d /etc/verbs3/verbs3.toml /etc/verbs3/cluster-secret /var/lib/verbs3 | wc -l", "3")
        self.machine.must("dpkg -i /root/verbs3.deb")
        self.same("where it comes back, nothing starts", "systemctl list-units --no-legend --state=active 'verbs3*' | grep -v verbs3-host; pgrep -u verbs3", "")
        self.machine.must("dpkg -P verbs3")
        self.same("a purge takes the cache and the package's file, and no secret", "ls -d /usr/bin/verbs3 /etc/verbs3/verbs3.toml /var/lib/verbs3 /run/verbs3 /usr/lib/systemd/system/verbs3* 2>/dev/null; ls /etc/verbs3/cluster-secret", "/etc/verbs3/cluster-secret")


def main(disk: Path, deb: Path, folder: Path) -> list[str]:
    began = time.monotonic()
    machine = BootedMachine(disk, KERNEL_WORDS)
    story = HostStory(machine)
    say = lambda what: print(f"host-vm: {time.monotonic() - began:.0f} s: {what}", flush=True)  # noqa: E731
    try:
        say(f"booted {machine.must('uname -r')}, {machine.must('systemctl --version | head -n 1')}; {deb.name}")
        story.install()
        story.tune_it()
        say("reboot")
        machine.reboot()
        story.tuned("after a reboot")
        story.hold("and by shared memory", story.served("after a reboot").endswith("shm"))
        story.settings()
        story.units()
        story.firewall()
        story.late_device()
        machine.must("systemctl disable verbs3-host.service")
        say("reboot, without verbs3-host.service")
        machine.reboot()
        said = story.differing()
        story.hold("what lasts by files lasts without it, and what does not is seen", said == {"rings", "irqs", "huge", "boot"}, said)
        story.served("without it")
        story.removed()
        machine.must(f"{TUNE} --remove")
        story.same("tune.sh --remove leaves none of its files", "find /etc /usr/local -name '*verbs3*' -not -path '/etc/verbs3*' -not -path '*/verbs3@*'", "")
        say("reboot, all taken back")
        machine.reboot()
        said = story.differing()
        story.hold("what tune.sh set is gone", said == {"memlock", "sysctl", "huge", "modules", "links", "rings", "irqs", "boot"}, said)
        story.same("no unit has failed", "systemctl --failed --no-legend", "")
    except MachineTrouble as error:
        story.wrong.append(str(error))
        story.tell_state()
    finally:
        machine.end()
    (folder / "not-proven").write_text(NOT_PROVEN)
    say("done")
    return story.wrong


if __name__ == "__main__":
    judge(main, __doc__, 3)
