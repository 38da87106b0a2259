#!/usr/bin/env python3
"""Starts the units of deploy/systemd by a systemd of their own, which is the first process of namespaces over a copy of this machine's
files: coordinator, worker and gateway over an etcd with certificates. Reads and writes through the gateway, restarts it under
readers, and looks at what the units have left their processes.

    units.py VERBS3 ETCD DIR     as root

Prints what is wrong and exits 1."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from client import IDENTITIES
from verdict import Broken, judge

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy/systemd"
WITHIN = 120
STORE = "127.0.0.1:7480"
# Users and groups.
VERBS3, MEMBER = 9000, 9001
ROLES = ("coordinator", "worker", "gateway")
# `systemd-analyze security`, in tenths: the most that a unit may be exposed.
EXPOSURE_MAX = {"verbs3@worker.service": 16, "verbs3-etcd.service": 13}

CONNECT = """\
import boto3
from botocore.config import Config
client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", aws_access_key_id="CLIENT", aws_secret_access_key="a-secret-of-a-client",
                      region_name="us-east-1",
                      config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
"""

CLIENT = CONNECT + """\
import os
body = os.urandom(1 << 20)
client.put_object(Bucket="demo", Key="units", Body=body)
for _ in range(2):
    answer = client.get_object(Bucket="demo", Key="units")
    assert answer["Body"].read() == body
print(answer["ResponseMetadata"]["HTTPHeaders"]["x-verbs3-transport"])
"""

# Each request is tried once: over connections that are kept, by hurried readers and by ones with pauses, and over one of its own.
READERS = CONNECT + """\
import http.client, subprocess, threading, time
body = client.get_object(Bucket="demo", Key="units")["Body"].read()
path = client.generate_presigned_url("get_object", Params={"Bucket": "demo", "Key": "units"}).split(":9000")[1]
over, failed, whole = threading.Event(), [], []
def read(is_kept, pause):
    line = http.client.HTTPConnection("127.0.0.1", 9000, timeout=60)
    while not over.is_set():
        try:
            line.request("GET", path, headers={} if is_kept else {"connection": "close"})
            answer = line.getresponse()
            (whole if (answer.status, answer.read()) == (200, body) else failed).append(answer.status)
        except Exception as error:
            failed.append(repr(error))
            line.close()
        time.sleep(pause)
readers = [threading.Thread(target=read, args=how) for how in ((True, 0.01), (True, 0.01), (True, 0.4), (False, 0.01), (False, 0.05))]
for reader in readers:
    reader.start()
for _ in range(3):
    time.sleep(1)
    subprocess.run(["systemctl", "restart", "verbs3@gateway.service"], check=True)
time.sleep(1)
over.set()
for reader in readers:
    reader.join()
print(len(whole), "whole reads;", *failed[:5])
"""

# Within the namespaces; systemd takes the place of this shell.
BOOT = """\
set -e
mount --make-rprivate /
mkdir -p "$1/root" "$1/layer"
mount -t tmpfs tmpfs "$1/layer"
mkdir "$1/layer/upper" "$1/layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/layer/upper,workdir=$1/layer/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
ip link set lo up
cp -a "$1/files/." .
exec chroot . /lib/systemd/systemd --system --log-target=console --show-status=0
"""


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def install(files: Path, verbs3: Path, etcd: Path) -> None:
    """What the README has somebody put onto a host, as root's files with the groups that read them."""
    (files / "usr/local/bin").mkdir(parents=True)
    shutil.copy(verbs3, files / "usr/local/bin/verbs3")
    shutil.copy(etcd, files / "usr/local/bin/etcd")
    for file, line in (("passwd", "{0}:x:{1}:{1}::/nonexistent:/usr/sbin/nologin\n"), ("group", "{0}:x:{1}:\n")):
        kept = re.sub(r"^(etcd|verbs3):.*\n", "", Path("/etc", file).read_text(), flags=re.M)
        put(files / "etc" / file, kept + line.format("verbs3", VERBS3) + line.format("etcd", MEMBER))
    put(files / "etc/hosts", "127.0.0.1 localhost coordinator-0 gpu-01\n10.255.255.1 coordinator-1 coordinator-2\n")
    put(files / "etc/hostname", "gpu-01\n")
    units = files / "etc/systemd/system"
    shutil.copytree(UNITS, units, ignore=shutil.ignore_patterns("*.toml", "*.env"))
    # The package's place is /usr/bin.
    text = (units / "verbs3-etcd.service").read_text()
    put(units / "verbs3-etcd.service", text.replace("/usr/bin/etcd", "/usr/local/bin/etcd"))
    put(units / "probe.target", "[Unit]\nDescription=nothing of this machine\nDefaultDependencies=no\n")
    (units / "default.target").symlink_to("probe.target")
    put(units / "store.service", f"[Service]\nExecStart=/usr/local/bin/verbs3 dev --no-demo --listen {STORE} --dir /srv/store --ready-file /srv/store.ready\n")
    # Nor does it take modules into this machine's kernel.
    (units / "modprobe@.service").symlink_to("/dev/null")
    # The environment of the tests may lie below /tmp: it is neither hidden nor emptied.
    (units / "tmp.mount").symlink_to("/dev/null")
    put(files / "etc/tmpfiles.d/tmp.conf", "")
    # There is no journal.
    put(units / "service.d/log.conf", "[Service]\nStandardOutput=append:/srv/units.log\nStandardError=inherit\n")
    # Nothing of what this machine starts by itself.
    for path in Path("/etc/systemd/system").glob("*.wants"):
        put(units / path.name / ".keep", "")
    place = files / "etc/verbs3"
    text = (UNITS / "verbs3.toml").read_text().replace("https://rgw.example:8443", f"http://{STORE}").replace("64GiB", "256MiB")
    put(place / "verbs3.toml", text)
    for role in ROLES:
        (place / f"{role}.toml").symlink_to("verbs3.toml")
    put(place / "worker.env", "VERBS3_WORKER__ID=gpu-01\n")
    text = (UNITS / "etcd.env").read_text()
    put(place / "etcd.env", re.sub(r"(ETCD_INITIAL_CLUSTER=[^,]*),.*", r"\1", text))
    subprocess.run([ROOT / "deploy/certificates.sh", files / "srv/certificates", "coordinator-0"], check=True)
    for folder, group, name in (("etcd", MEMBER, "members"), ("etcd-client", VERBS3, "coordinators")):
        for file in ("ca.crt", f"{name}.crt", f"{name}.key"):
            put(place / folder / file, (files / "srv/certificates" / file).read_text(), 0o640)
            os.chown(place / folder / file, 0, group)
    for name, content in (("cluster-secret", "a secret of the units' test, long enough\n"), ("identities.toml", IDENTITIES), ("credentials", "")):
        put(place / name, content, 0o640)
        os.chown(place / name, 0, VERBS3)


class Machine:
    """Namespaces whose first process is systemd."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "console.log"
        command = ["unshare", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "--kill-child", "bash", "-c", BOOT, "boot", str(folder)]
        with open(self.log, "wb") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | {"container": "test"})
        self.first = None
        self.wait("systemd", self.boot)

    def boot(self) -> bool:
        if self.process.poll() is not None:
            raise Broken("systemd does not start: " + self.log.read_text(errors="replace")[-2000:])
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.first = children[0] if children else None
        return self.first is not None and self.run("systemctl", "is-active", "probe.target")[0] == 0

    def run(self, *words: str) -> tuple[int, str]:
        command = ["nsenter", "--target", self.first, "--all", "--root", "--wdns=/", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN)
        return done.returncode, (done.stdout + done.stderr).strip()

    def said(self) -> str:
        """What the units have said."""
        return self.run("cat", "/srv/units.log")[1]

    def wait(self, what: str, holds) -> None:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > WITHIN:
                raise Broken(f"{what} does not come: {self.said()[-3000:]}")
            time.sleep(0.2)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def start(machine: Machine, unit: str) -> None:
    status, said = machine.run("systemctl", "start", unit)
    if status != 0:
        raise Broken(f"{unit} does not start: {said}\n{machine.said()[-2000:]}")


def left(machine: Machine, unit: str) -> list[str]:
    """What a unit has left its process that it should not have."""
    pid = machine.run("systemctl", "show", "--value", "-p", "MainPID", unit)[1]
    entries = dict(re.findall(r"^(\w+):\s*(.*)$", machine.run("cat", f"/proc/{pid}/status")[1], re.M))
    expected = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    seen = {name: entries.get(name) for name in expected}
    wrong = [] if seen == expected else [f"{unit}: runs with {seen}, not with {expected}"]
    limits = machine.run("cat", f"/proc/{pid}/limits")[1]
    if not re.search(r"^Max core file size +0 +0 ", limits, re.M):
        wrong.append(f"{unit}: may dump core")
    if entries.get("Uid", "0").split()[0] == "0":
        wrong.append(f"{unit}: runs as root")
    if unit != "verbs3-etcd.service" and may_raise_limits() and not re.search(r"^Max locked memory +unlimited +unlimited ", limits, re.M):
        wrong.append(f"{unit}: may not lock memory: {limits}")
    # As its process sees it: the folder that it may write to, and others.
    for path in ("/usr", "/etc/verbs3", "/srv"):
        flags = machine.run("sh", "-c", f"nsenter --target {pid} --mount --root --wdns=/ findmnt --noheadings --output VFS-OPTIONS --target {path}")[1]
        if "ro" not in flags.split(","):
            wrong.append(f"{unit}: {path} is not read-only ({flags})")
    return wrong


def may_raise_limits() -> bool:
    """CAP_SYS_RESOURCE, which the root of a container may lack: a unit then has no more than this process."""
    return bool(int(re.search(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.M)[1], 16) >> 24 & 1)


def exposure(folder: Path) -> list[str]:
    """The score of systemd's own look at the units; 0 is the least exposed, 100 the most."""
    wrong = []
    for unit, most in EXPOSURE_MAX.items():
        path = folder / unit
        shutil.copy(UNITS / re.sub(r"@\w+", "@", unit), path)
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", f"--threshold={most}", path], capture_output=True, text=True)
        score = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
        print(f"units: {unit}: exposure {score[1] if score else '?'}, at most {most / 10}")
        if done.returncode != 0 or not score:
            wrong.append(f"{unit} is more exposed than {most / 10}: {done.stdout[-200:]}{done.stderr}")
    return wrong


def main(verbs3: Path, etcd: Path, folder: Path) -> list[str]:
    wrong = exposure(folder)
    install(folder / "files", verbs3, etcd)
    machine = Machine(folder)
    try:
        start(machine, "store.service")
        machine.wait("the store", lambda: machine.run("test", "-e", "/srv/store.ready")[0] == 0)
        identity = tomllib.loads(machine.run("cat", "/srv/store/identities.toml")[1])["identity"][0]
        keys = f"[default]\naws_access_key_id = {identity['access_key']}\naws_secret_access_key = {identity['secret_key']}"
        machine.run("sh", "-c", f"printf '%s\\n' '{keys}' >/etc/verbs3/credentials")
        units = ["verbs3-etcd.service", *(f"verbs3@{role}.service" for role in ROLES)]
        start(machine, "verbs3-gateway.socket")
        for unit in units:
            start(machine, unit)
        machine.wait("the gateway", lambda: machine.run("curl", "-sf", "http://127.0.0.1:9001/readyz")[0] == 0)
        print(f"units: started {', '.join(units)}")
        status, said = machine.run(sys.executable, "-c", CLIENT)
        if (status, said) != (0, "shm"):
            wrong.append(f"a client of the gateway: {status}: {said}")
        status, said = machine.run(sys.executable, "-c", READERS)
        print(f"units: three restarts of the gateway: {said}")
        if status != 0 or not re.fullmatch(r"[1-9][0-9]+ whole reads;", said):
            wrong.append(f"restarts of the gateway are noticed: {status}: {said}")
        for unit in units:
            wrong += left(machine, unit)
        # The drop-in's drain; nobody is there to take over, so the end comes at once.
        status, said = machine.run("systemctl", "stop", "verbs3@worker.service")
        if status != 0 or "no other worker is there to take them" not in machine.said():
            wrong.append(f"stopping the worker does not drain it: {status}: {said}")
    except Broken as error:
        wrong.append(str(error))
    finally:
        machine.end()
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 3)
