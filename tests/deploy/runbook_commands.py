#!/usr/bin/env python3
"""Runs the commands of docs/runbooks and docs/operations.md as they stand there, on a host that has what deploy/systemd ships where
deploy/README.md puts it: store, etcd with certificates, coordinator, two workers and a gateway are real processes.

    runbook_commands.py VERBS3 ETCD DIR     in namespaces of its own for mounts and network

What the pages leave open (ID, POD, BUCKET) is put in. A command is wrong that ends with status 2, which is usage or configuration, or
that says so. Prints what is wrong and exits 1."""

import os
import re
import shutil
import socket
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import boto3

from client import ACCESS_KEY, IDENTITIES, SECRET_KEY
from lab import WITHIN, wait
from verdict import Broken, judge

ROOT = Path(__file__).resolve().parents[2]
UNITS, RUNBOOKS, INDEX = ROOT / "deploy/systemd", ROOT / "docs/runbooks", ROOT / "docs/runbooks/index.md"
CONFIG = Path("/etc/verbs3")
STORE, LEAST = "127.0.0.1:7480", 25
SOCKET = "/run/verbs3-probe/probe.sock"
# Of the pages, and what they are here. ID of a job stands behind `preload`.
OPEN = {r"(preload (?:show|stop)) ID": r"\1 job-1", r"\bID\b|\bNODE\b": "gpu-07", r"\bWORKER\b": "gpu-08", "BUCKET/KEY": "demo/object"}
# In a sentence these are names of commands, not words to be typed.
NAMES = {"verbs3 status", "verbs3 doctor", "verbs3 cache", "verbs3 plan", "verbs3 probe", "verbs3 config check"}
NOT_RUN = {"verbs3 doctor --fleet hosts.txt": "it asks hosts over ssh, and there are none"}
# A line that is a command's, or has one behind other words.
COMMAND = re.compile(r"^(?:systemd-run .* |VERBS3_WORKER__ID=NODE )?verbs3 [a-z]")
COMPLAINTS = ("no coordinator is named", "no coordinator answers", "secret is missing", "can't read", "is missing; it is", "no --secret-file")
# What it is asked for is not proven by it: that it takes its options. It gives the command the unit's file.
SYSTEMD_RUN = """\
#!/bin/bash
while [[ $1 == -* ]]; do
    if [ "$1" = -p ]; then
        [[ $2 != EnvironmentFile=* ]] || { set -a; . "${2#EnvironmentFile=}"; set +a; }
        shift
    fi
    shift
done
exec "$@"
"""


def fences(text: str) -> list[str]:
    """Lines of blocks of code, without what a page says of them."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"(^|\s+)#\s.*", "", line).strip() for line in lines]


def commands(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    found = []
    for line in fences(text):
        for part in re.split(r";|&&", line):
            # What a pod is asked is asked here, where the files have the same names. Its variables are those of deploy/kubernetes.
            part = re.sub(r"^kubectl .* -- ", "VERBS3_WORKER__ID=NODE ", part.strip())
            found += [re.sub(r"\s+", " ", part)] if COMMAND.search(part) else []
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    spans = [re.sub(r"\s+", " ", span) for span in re.findall(r"`(verbs3 [a-z][^`]*)`", prose)]
    return found + [span for span in spans if span not in NAMES]


def filled(command: str) -> str:
    for what, value in OPEN.items():
        command = re.sub(what, value, command)
    # A tenth of a second for each figure.
    return command + " --seconds 0.1" if "bench fabric" in command and "--serve" not in command else command


def environment(*files: Path) -> dict[str, str]:
    """What units and their files of variables give a process."""
    text = "\n".join(file.read_text() for file in files)
    return dict(re.findall(r"^(?:Environment=)?([A-Z][A-Z0-9_]*)=(\S+)$", text, re.M))


class Host:
    """Its files, within this mount namespace, and its processes; all end with it."""

    def __init__(self, verbs3: Path, etcd: Path, folder: Path) -> None:
        self.folder, self.processes = folder, []
        self.lay_out(verbs3, etcd)
        self.start("store", [verbs3, "dev", "--no-demo", "--listen", STORE, "--dir", folder / "store", "--ready-file", folder / "ready"])
        wait("the store", (folder / "ready").exists)
        identity = tomllib.loads((folder / "store/identities.toml").read_text())["identity"][0]
        self.put("credentials", f"[default]\naws_access_key_id = {identity['access_key']}\naws_secret_access_key = {identity['secret_key']}\n")
        self.start("etcd", [etcd, "--data-dir", folder / "etcd", "--unsafe-no-fsync"], environment(CONFIG / "etcd.env"))
        unit = environment(UNITS / "verbs3@.service")
        coordinator = environment(UNITS / "verbs3@coordinator.service.d/etcd-tls.conf") | {"VERBS3_COORDINATOR__MOVE_FOR": "1s"}
        self.serve("coordinator", unit | coordinator, "127.0.0.1:9501")
        for number in (7, 8):
            # Two hosts are one here, with an address each.
            address = f"127.0.0.{number}"
            own = environment(CONFIG / "worker.env") | {"VERBS3_WORKER__ID": f"gpu-0{number}", "VERBS3_WORKER__LISTEN": f"{address}:9400",
                                                       "VERBS3_WORKER__ADVERTISE": f"gpu-0{number}:9400", "VERBS3_WORKER__ADMIN_LISTEN": f"{address}:9401",
                                                       "VERBS3_WORKER__SHM__SOCKET": f"/run/verbs3/gpu-0{number}.sock"}
            self.serve("worker", unit | own, f"{address}:9401")
        self.serve("gateway", unit | {"VERBS3_GATEWAY__PROBE_SOCKET": SOCKET}, "127.0.0.1:9001")
        wait("both workers", lambda: b"verbs3_coordinator_members 2" in read("127.0.0.1:9501", "/metrics"))

    def lay_out(self, verbs3: Path, etcd: Path) -> None:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        layer = self.folder / "layer"
        layer.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layer], check=True)
        for name in ("upper", "work"):
            (layer / name).mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/etc,upperdir={layer}/upper,workdir={layer}/work", "/etc"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        for folder in (Path("/run/verbs3"), Path(SOCKET).parent, self.folder / "programs"):
            folder.mkdir()
        shutil.rmtree(CONFIG, ignore_errors=True)
        # Not into what lies below, which is not the root of these namespaces.
        Path("/etc/hosts").unlink(missing_ok=True)
        Path("/etc/hosts").write_text("127.0.0.1 localhost coordinator-0\n127.0.0.7 gpu-07\n127.0.0.8 gpu-08\n")
        shipped = (UNITS / "verbs3.toml").read_text().replace("https://rgw.example:8443", f"http://{STORE}").replace("64GiB", "32MiB")
        self.put("verbs3.toml", re.sub(r'(= \["https?://coordinator-0:\d+")[^]]*', r"\1", shipped))
        for role in ("coordinator", "worker", "gateway"):
            (CONFIG / f"{role}.toml").symlink_to("verbs3.toml")
        self.put("worker.env", "VERBS3_WORKER__ID=gpu-07\n")
        self.put("etcd.env", re.sub(r"(ETCD_INITIAL_CLUSTER=[^,]*),.*", r"\1", (UNITS / "etcd.env").read_text()))
        self.put("cluster-secret", "a secret of the runbooks' test, long enough\n")
        self.put("identities.toml", IDENTITIES)
        pki = self.folder / "pki"
        subprocess.run([ROOT / "deploy/certificates.sh", pki, "coordinator-0"], check=True)
        for folder, name in (("etcd", "members"), ("etcd-client", "coordinators")):
            for file in ("ca.crt", f"{name}.crt", f"{name}.key"):
                self.put(f"{folder}/{file}", (pki / file).read_text())
        self.programs = self.folder / "programs"
        (self.programs / "verbs3").symlink_to(verbs3)
        # tests/testbed/etcd.sh unpacks it beside.
        (self.programs / "etcdctl").symlink_to(etcd.parents[3] / "etcdctl/usr/bin/etcdctl")
        (self.programs / "systemd-run").write_text(SYSTEMD_RUN)
        (self.programs / "systemd-run").chmod(0o755)

    def put(self, name: str, text: str) -> None:
        path = CONFIG / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o640)

    def start(self, name: str, words: list, own: dict[str, str] | None = None) -> subprocess.Popen:
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.path() | (own or {}))
        self.processes.append(process)
        return process

    def serve(self, role: str, own: dict[str, str], admin: str) -> None:
        process = self.start(role, [self.programs / "verbs3", role, "--config", CONFIG / f"{role}.toml"], own)

        def answers() -> bool:
            if process.poll() is not None:
                raise Broken(f"{role} has ended: {(self.folder / f'{role}.log').read_text()[-1000:]}")
            return bool(read(admin, "/healthz"))

        wait(role, answers)

    def path(self) -> dict[str, str]:
        return {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": "/root"}

    def run(self, script: str) -> tuple[int, str]:
        """As somebody types it who has just come to the host: no variable is set."""
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=WITHIN, env=self.path(), stdin=subprocess.DEVNULL, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr

    def end(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


def read(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return answer.read()


def complaint(host: Host, command: str) -> str | None:
    """What is wrong with how a command ended."""
    if "--serve" in command:
        process = host.start("fabric", ["bash", "-c", f"exec {command}"])
        wait(command, lambda: process.poll() is not None or socket.create_connection(("127.0.0.8", 9410), 1).close() is None)
        status, said = process.poll() or 0, (host.folder / "fabric.log").read_text()
    else:
        status, said = host.run(command)
    # These end with 0 here; the others may have something to say.
    bound = 0 if any(word in command for word in ("worker ", "bench", "doctor", "preload show", "cache where", "probe")) else 1
    if status > bound or any(text in said for text in COMPLAINTS):
        return f"{command!r}: status {status}: {said[-600:]}"
    return None


def etcd_commands(host: Host) -> list[str]:
    lines = [line for line in fences((RUNBOOKS / "coordinators.md").read_text(encoding="utf-8")) if "$e " in line or "etcdctl" in line]
    status, said = host.run("set -e\n" + "\n".join(lines))
    if status != 0 or not lines or "Finished defragmenting" not in said or "compacted revision" not in said:
        return [f"etcdctl of coordinators.md: status {status}: {said[-1500:]}"]
    return []


def pod_names() -> list[str]:
    """Labels, pods and files of kubectl's lines that no manifest has."""
    manifests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "deploy/kubernetes").glob("*.yaml"))
    wrong = []
    for page in sorted(RUNBOOKS.glob("*.md")):
        lines = [line for line in page.read_text(encoding="utf-8").splitlines() if "kubectl" in line]
        for line in lines:
            named = [f"app: {name}" for name in re.findall(r"app=([\w-]+)", line)] + [f"name: {name}" for name in re.findall(r"exec (verbs3-[\w-]+)-0 ", line)]
            named += re.findall(r"--socket (\S+)", line)
            wrong += [f"{page.name}: {one} is not in deploy/kubernetes" for one in named if one not in manifests]
    return wrong


def main(verbs3: Path, etcd: Path, folder: Path) -> list[str]:
    pages = sorted(RUNBOOKS.glob("*.md"))
    typed = {command: page.name for page in pages for command in commands(page)}
    variables = next((line for line in fences(INDEX.read_text(encoding="utf-8")) if line.startswith("export VERBS3_")), "")
    # That page says that they are set.
    typed |= {f"{variables}\n{command}": "operations.md" for command in commands(ROOT / "docs/operations.md") if command not in NOT_RUN}
    for command, reason in NOT_RUN.items():
        print(f"runbooks: not run: {command}: {reason}")
    wrong = [] if len(typed) >= LEAST else [f"only {len(typed)} commands are found"]
    wrong += pod_names()
    host = Host(verbs3, etcd, folder)
    try:
        client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", region_name="us-east-1", aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY)
        client.put_object(Bucket="demo", Key="object", Body=b"an object")
        status, said = host.run("verbs3 preload s3://demo/ --id job-1 --config /etc/verbs3/verbs3.toml")
        wrong += [f"preload: {said}"] if status != 0 else []
        # What takes a worker away comes last.
        for command in sorted(typed, key=lambda one: ("worker forget" in one, "worker undrain" in one, "worker drain" in one, "--serve" not in one)):
            found = complaint(host, filled(command))
            wrong += [f"{typed[command]}: {found}"] if found else []
        # As workers.md has it of one that lives.
        wait("a worker that was forgotten", lambda: "the coordinator does not know this worker; registering" in (folder / "worker.log").read_text())
        wait("both workers, once more", lambda: b"verbs3_coordinator_members 2" in read("127.0.0.1:9501", "/metrics"))
        wrong += etcd_commands(host)
    except (Broken, subprocess.TimeoutExpired) as error:
        wrong.append(str(error))
    finally:
        host.end()
    print(f"runbooks: {len(typed)} commands of {len(pages) + 1} pages were run as they stand; systemd-run is a stand-in")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 3)
