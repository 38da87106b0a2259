#!/usr/bin/env python3
"""The Debian package: built twice, looked into, and installed, upgraded and purged in a copy of this host's root that is thrown away.

    package.py VERBS3 DIR      VERBS3: the binary that is packed; DIR takes packages and trees

Prints what is wrong and exits 1. What this machine does not allow goes to DIR/not-proven."""

import hashlib
import os
import subprocess
from pathlib import Path

from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "deploy/debian/build.sh"
OWN = ("./usr/bin/verbs3", "./usr/lib/systemd/system/", "./usr/share/doc/verbs3/", "./usr/share/man/man1/verbs3.1.gz", "./usr/share/lintian/", "./etc/verbs3/verbs3.toml")
# In a root of its own: what happens on a host, as an operator would see it. Each line that begins with HOLD names what it holds.
STORY = r"""
set -eu
hold() { if eval "$2"; then echo "HELD $1"; else echo "ERROR: $1 ($2)"; exit 1; fi; }
export DEBIAN_FRONTEND=noninteractive
dpkg --force-depends -i "$FIRST" >/dev/null
hold "it is installed" 'dpkg -s verbs3 | grep -q "Status: install ok installed"'
hold "the user has no shell and no password" 'getent passwd verbs3 | grep -q nologin && getent shadow verbs3 | grep -qE "^verbs3:[!*]"'
hold "the binary runs" '/usr/bin/verbs3 version >/dev/null'
hold "the folder of secrets is listed to the group alone" '[ "$(stat -c "%U:%G %a" /etc/verbs3)" = "root:verbs3 751" ]'
getent passwd etcd >/dev/null || useradd --system --user-group etcd
mkdir -p /etc/verbs3/etcd
echo key > /etc/verbs3/etcd/members.key; chgrp etcd /etc/verbs3/etcd/members.key; chmod 640 /etc/verbs3/etcd/members.key
echo own > /etc/verbs3/credentials; chgrp verbs3 /etc/verbs3/credentials; chmod 640 /etc/verbs3/credentials
hold "etcd's user reads its certificates" 'setpriv --reuid etcd --regid etcd --clear-groups cat /etc/verbs3/etcd/members.key | grep -q key'
hold "and nothing of the package's user" '! setpriv --reuid etcd --regid etcd --clear-groups cat /etc/verbs3/credentials 2>/dev/null'
hold "the package's user reads its own" 'setpriv --reuid verbs3 --regid verbs3 --clear-groups cat /etc/verbs3/credentials | grep -q own'
hold "nothing is enabled" '! find /etc/systemd/system -name "verbs3*" | grep -q .'
hold "units name the binary of the package" 'grep -q "ExecStart=/usr/bin/verbs3" /usr/lib/systemd/system/verbs3@.service && ! grep -rq /usr/local /usr/lib/systemd/system/verbs3*'
echo "# the operator's" >> /etc/verbs3/verbs3.toml
echo secret > /etc/verbs3/cluster-secret
chmod 700 /etc/verbs3
dpkg --force-depends --force-confdef --force-confold -i "$SECOND" >/dev/null 2>&1
hold "an upgrade keeps the operator's file" 'tail -1 /etc/verbs3/verbs3.toml | grep -q operator'
hold "and lays the new one beside it" 'grep -q "# of the second version" /etc/verbs3/verbs3.toml.dpkg-dist'
hold "and keeps the folder's mode" '[ "$(stat -c %a /etc/verbs3)" = 700 ]'
dpkg --force-depends --force-confdef --force-confold -i "$FIRST" >/dev/null 2>&1
hold "the way back keeps it, too" 'tail -1 /etc/verbs3/verbs3.toml | grep -q operator'
mkdir -p /var/lib/verbs3/disk /var/lib/verbs3/drive /etc/systemd/system/multi-user.target.wants /etc/systemd/system/sockets.target.wants /run/verbs3
touch /var/lib/verbs3/disk/page
ln -s /usr/lib/systemd/system/verbs3@.service /etc/systemd/system/multi-user.target.wants/verbs3@worker.service
ln -s /usr/lib/systemd/system/verbs3-gateway.socket /etc/systemd/system/sockets.target.wants/verbs3-gateway.socket
dpkg -r verbs3 >/dev/null 2>&1
hold "a removal keeps the configuration and the cache" '[ -e /etc/verbs3/verbs3.toml ] && [ -e /var/lib/verbs3/disk ] && [ ! -e /usr/bin/verbs3 ]'
hold "and takes what was enabled" '! find /etc/systemd/system -name "verbs3*" | grep -q .'
mount -t tmpfs none /var/lib/verbs3/drive; touch /var/lib/verbs3/drive/data
dpkg -P verbs3 >/dev/null 2>&1
hold "a purge leaves a drive that is mounted, and ends well" '[ -e /var/lib/verbs3/drive/data ] && [ ! -e /var/lib/verbs3/disk ] && ! dpkg -s verbs3 2>/dev/null | grep -q Status:'
umount /var/lib/verbs3/drive; rmdir /var/lib/verbs3/drive; rmdir /var/lib/verbs3
hold "a purge takes them, and no secret" '[ ! -e /etc/verbs3/verbs3.toml ] && [ ! -e /var/lib/verbs3 ] && [ ! -e /run/verbs3 ] && [ -e /etc/verbs3/cluster-secret ]'
"""


def build(binary: Path, folder: Path, version: str, environment: dict | None = None) -> Path:
    said = os.environ | {"BINARY": str(binary), "VERSION": version, "COMPRESSION": "gzip"} | (environment or {})
    done = subprocess.run([BUILD, folder], env=said, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ERROR: {BUILD}: {done.stderr}")
    return Path(done.stdout.strip().splitlines()[-1])


def told(*words) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout


def wrong_inside(deb: Path) -> list[str]:
    wrong = []
    for line in told("dpkg-deb", "--contents", deb).splitlines():
        mode, owner, _, _, _, path = line.split(None, 5)
        if owner != "root/root" or "s" in mode or "t" in mode or (mode[8] == "w" and mode[0] != "l"):
            wrong.append(f"{path} is {mode} of {owner}")
        if mode[0] != "d" and not path.startswith(OWN):
            wrong.append(f"{path} is not where a package puts things")
    files = told("dpkg-deb", "--info", deb, "conffiles")
    if files.split() != ["/etc/verbs3/verbs3.toml"]:
        wrong.append(f"files of the operator: {files}")
    for script in ("postinst", "prerm", "postrm"):
        text = told("dpkg-deb", "--info", deb, script)
        if any(word in text for word in ("systemctl enable", "systemctl start", "systemctl restart", "deb-systemd-helper")):
            wrong.append(f"{script} starts or enables something")
    return wrong


def main(binary: Path, folder: Path) -> list[str]:
    first = build(binary, folder / "a", "0.1.0")
    again = build(binary, folder / "b", "0.1.0")
    wrong = wrong_inside(first)
    if hashlib.sha256(first.read_bytes()).digest() != hashlib.sha256(again.read_bytes()).digest():
        wrong.append("the same sources give two packages that differ")
    # Another version, whose configuration file differs, made of the first.
    tree = folder / "second"
    subprocess.run(["dpkg-deb", "-R", first, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: 0.1.0", "Version: 0.1.1"))
    with (tree / "etc/verbs3/verbs3.toml").open("a") as config:
        config.write("# of the second version\n")
    second = folder / "verbs3_0.1.1.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, second], check=True, capture_output=True)

    layers = folder / "layers"
    # The layers on a file system of their own: what holds DIR may be a layer itself.
    script = f"""mount -t tmpfs none {layers} && mkdir {layers}/up {layers}/work {layers}/root &&
mount -t overlay overlay -o lowerdir=/,upperdir={layers}/up,workdir={layers}/work {layers}/root || exit 77
mkdir -p {layers}/root/packages && cp {first} {layers}/root/packages/first.deb && cp {second} {layers}/root/packages/second.deb
rm -rf {layers}/root/run/systemd {layers}/root/etc/verbs3 {layers}/root/var/lib/verbs3
mount -t proc proc {layers}/root/proc; mount --rbind /dev {layers}/root/dev
FIRST=/packages/first.deb SECOND=/packages/second.deb exec chroot {layers}/root sh -c "$STORY" """
    layers.mkdir()
    held = 0
    if os.geteuid() != 0:
        (folder / "not-proven").write_text("the package's installation: this is not root\n")
    else:
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", script], env=os.environ | {"STORY": STORY}, capture_output=True, text=True)
        held = done.stdout.count("HELD")
        if done.returncode == 77:
            (folder / "not-proven").write_text("the package's installation: this machine allows no overlay of its root\n")
        elif done.returncode != 0 or held != STORY.count("\nhold "):
            wrong.append(f"installation: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"package: {first.name}, {first.stat().st_size >> 20} MiB by gzip, twice the same; {held} things held where it was installed")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 2)
