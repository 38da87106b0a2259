#!/usr/bin/env python3
"""Starts the pods of deploy/kubernetes, by the built binary: each container's own command line, in a tree of folders that has what
the pod mounts and nothing else, with the environment, as the user and with the rights that the manifest says (confinement.py). One
node, one coordinator; an etcd that wants certificates; the store is `verbs3 dev`.

    pods.py VERBS3 ETCD DIR [JOBS]     in a mount and a network namespace of its own (run.sh makes them)

JOBS: the chart's acceptance jobs, rendered.

Prints what is wrong and exits 1.
"""

import os
import re
import resource
import signal
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.config import Config

from client import ACCESS_KEY, IDENTITIES, SECRET_KEY
from confinement import confine
from manifests import Container, Objects, config_maps, containers, objects, pod_of, read
from verdict import Broken, judge

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/container"))
from assemble_image import ENTRYPOINT, USER  # noqa: E402

KUBERNETES = ROOT / "deploy/kubernetes"
STORE = "127.0.0.1:7480"
# What of the image is the host's here: programs and libraries.
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr")
WITHIN = 120
# As container runtimes have it.
MEMLOCK = 8 << 20
NODE = "gpu-01"
# No route leads there.
NOWHERE = "10.255.255.1"


class Node:
    """A machine on which pods are started."""

    def __init__(self, verbs3: Path, folder: Path) -> None:
        self.folder, self.processes, self.owned = folder, [], os.geteuid() == 0 and uid_count() > 1
        self.programs = folder / "programs"
        self.programs.mkdir()
        shutil.copy(verbs3, self.programs / "verbs3")

    def tree(self, container: Container) -> Path:
        tree = self.folder / "trees" / f"{container.manifest}-{container.workload}-{container.name}"
        if tree.exists():
            return tree
        # A mount of its own, so that it can become read-only.
        bind(tree, tree)
        for name in SYSTEM:
            here = Path("/", name)
            if here.is_symlink():
                tree.mkdir(parents=True, exist_ok=True)
                (tree / name).symlink_to(os.readlink(here))
            elif here.is_dir():
                bind(here, tree / name)
        bind(self.programs, tree / "usr/local/bin")
        for name in ("proc", "sys", "dev", "etc/ssl"):
            bind(Path("/", name), tree / name)
        (tree / "tmp").mkdir()
        (tree / "tmp").chmod(0o1777)
        (tree / "etc/nsswitch.conf").write_text("hosts: files\n")
        hosts = [f"{address} {name}\n" for name, address in names().items()]
        (tree / "etc/hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts))
        for mount in container.mounts:
            self.mount(container, tree, mount)
        if container.has_read_only_root:
            make_read_only(tree)
        return tree

    def mount(self, container: Container, tree: Path, mount) -> None:
        path = tree / mount.path.lstrip("/")
        if mount.host:
            here = self.folder / "host" / mount.host.lstrip("/")
        else:
            here = self.folder / "volumes" / f"{tree.name}-{path.name}"
        here.mkdir(parents=True, exist_ok=True)
        if not mount.host:
            here.chmod(0o755 if mount.files else 0o777)
        for name, content in mount.files.items():
            (here / name).write_text(content, encoding="utf-8")
            (here / name).chmod(mount.mode)
            if container.fs_group is not None and self.owned:
                os.chown(here / name, 0, container.fs_group)
        bind(here, path)
        if mount.is_read_only:
            make_read_only(path)

    def start(self, container: Container, words: list[str], log: Path) -> subprocess.Popen:
        tree = self.tree(container)

        def become() -> None:
            os.chroot(tree)
            os.chdir("/")
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (MEMLOCK, MEMLOCK))
            if self.owned:
                os.setgroups([] if container.fs_group is None else [container.fs_group])
                os.setgid(container.group)
            confine(container, container.user if self.owned else os.getuid())

        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOSTNAME": container.workload} | container.env
        with open(log, "ab") as file:
            process = subprocess.Popen(words, env=env, preexec_fn=become, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.processes.append((container, process, log))
        return process

    def run(self, container: Container, words: list[str]) -> tuple[int, str]:
        log = self.folder / "command.log"
        log.unlink(missing_ok=True)
        process = self.start(container, words, log)
        self.processes.pop()
        status = process.wait(timeout=WITHIN)
        return status, log.read_text(encoding="utf-8", errors="replace").strip()

    def serve(self, container: Container) -> None:
        """Starts it, and waits until its readiness probe is answered."""
        log = self.folder / f"{container.manifest}-{container.name}.log"
        process = self.start(container, container.words, log)
        port, path = container.ready
        began = time.monotonic()
        while True:
            if process.poll() is not None:
                raise Broken(f"{container}: ended with {process.returncode}:\n{tail(log)}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
                return
            except OSError as error:
                if time.monotonic() - began > WITHIN:
                    raise Broken(f"{container}: is not ready ({error}):\n{tail(log)}") from error
            time.sleep(0.1)

    def end(self) -> list[str]:
        """SIGTERM to all, the youngest first; what did not end well."""
        wrong = []
        for container, process, log in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(timeout=WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                status = "SIGKILL"
            if status != 0:
                wrong.append(f"{container}: ended with {status} after SIGTERM:\n{tail(log)}")
        self.processes = []
        return wrong


def tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])


def uid_count() -> int:
    return sum(int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text().splitlines())


def bind(what: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--rbind", what, where], check=True)


def make_read_only(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)


def names() -> dict[str, str]:
    """Every host that a configuration names. Of the coordinators the first is there; one etcd is all its members."""
    text = "".join(path.read_text(encoding="utf-8") for path in KUBERNETES.glob("*.toml"))
    found = re.findall(r'://([a-z0-9.-]+):', text) + re.findall(r'address = "([a-z0-9.-]+):', text)
    is_other = re.compile(r"coordinator-[1-9]")
    return {name: NOWHERE if is_other.search(name) else "127.0.0.1" for name in found} | {NODE: "127.0.0.1", "verbs3-fabric": "127.0.0.1"}


def load(path: Path, given: dict[str, str], alter=lambda documents: None) -> list[Container]:
    """The containers of a manifest, with the ConfigMaps of all of them, and Secrets made as the README says. GIVEN: by the path in
    its commands, what a person brings along."""
    made: Objects = objects((ROOT / "deploy/README.md").read_text(encoding="utf-8"), KUBERNETES, given)
    made |= config_maps(KUBERNETES)
    documents = read(path)
    alter(documents)
    return containers_here(path, documents, made)


def containers_here(path: Path, documents: list[dict], made: Objects) -> list[Container]:
    """The containers of documents, as they are on this machine, which has not: the store, 64 GiB, and more nodes than one."""
    for entries in made.values():
        for name, content in entries.items():
            entries[name] = re.sub(r"https://rgw\.example:\d+", f"http://{STORE}", content).replace("64GiB", "256MiB")
    fields = {"metadata.name": "verbs3-coordinator-0", "spec.nodeName": NODE, "status.hostIP": "127.0.0.1"}
    return containers(path, documents, made, fields, USER, list(ENTRYPOINT))


def role(container: Container) -> tuple[str, str]:
    """A container's role and file."""
    return container.words[len(container.program)], container.words[container.words.index("--config") + 1]


def checked(node: Node, container: Container) -> tuple[int, str]:
    name, file = role(container)
    return node.run(container, [*container.program, "config", "check", file, "--role", name])


def put_and_get(endpoint: str = "http://127.0.0.1:9000", authority: Path | None = None) -> None:
    """AUTHORITY: whose certificate the gateway has to show."""
    client = boto3.client("s3", endpoint_url=endpoint, verify=authority and str(authority), aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
                          region_name="us-east-1", config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
    body = os.urandom(1 << 20)
    client.put_object(Bucket="demo", Key="pods", Body=body)
    for _ in range(2):
        answer = client.get_object(Bucket="demo", Key="pods")
        if answer["Body"].read() != body:
            raise Broken("the gateway gives back other bytes than it was given")
    transport = answer["ResponseMetadata"]["HTTPHeaders"]["x-verbs3-transport"]
    if transport != "shm":
        raise Broken(f"the gateway does not reach its node's worker by the folder of sockets: {transport}")


def confined(node: Node) -> list[str]:
    """What of their confinement the processes that serve don't have."""
    wrong = []
    for container, process, _ in node.processes:
        entries = dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{process.pid}/status").read_text(), re.M))
        expected = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
        if node.owned:
            expected["Uid"] = "\t".join([str(container.user)] * 4)
        seen = {name: entries[name] for name in expected}
        if seen != expected:
            wrong.append(f"{container}: runs with {seen}, not with {expected}")
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        if not re.search(r"^Max core file size +1 +1 ", limits, re.M):
            wrong.append(f"{container}: may dump core")
        status, said = node.run(container, ["sh", "-c", "for folder in / /etc /tmp /etc/verbs3 /etc/verbs3-secret; do touch $folder/probe && exit 0; done; exit 1"])
        if status != 1:
            wrong.append(f"{container}: writes into its root: {said}")
    return wrong


def started(node: Node, found: list[Container], order: list[str]) -> list[str]:
    """Starts the pods, uses them, stops them."""
    wrong = []
    by_role = {role(container)[0]: container for container in found if not container.is_init}
    for container in found:
        # They hand folders to other users, of whom there are none without root.
        if container.is_init and node.owned:
            status, said = node.run(container, container.words)
            if status != 0:
                wrong.append(f"{container}: ended with {status}: {said}")
    try:
        for name in order:
            node.serve(by_role[name])
        put_and_get()
        wrong += confined(node)
        if "coordinator" in order:
            wrong += commands(node, by_role)
    except Exception as error:  # noqa: BLE001 # told, with what the others say
        wrong.append(f"{error}")
    return wrong + node.end()


def commands(node: Node, by_role: dict[str, Container]) -> list[str]:
    """What is run in pods that serve: the README's status, and the worker's preStop."""
    wrong = []
    text = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    status_words = re.search(r"exec verbs3-coordinator-0 -- (verbs3 status .*)$", text, re.M)[1].split()
    status, said = node.run(by_role["coordinator"], status_words)
    # 1: that something is to be done. Two coordinators are not there.
    if status not in (0, 1) or NODE not in said:
        wrong.append(f"{' '.join(status_words)}, in the coordinator's pod: {status}: {said}")
    worker = by_role["worker"]
    status, said = node.run(worker, worker.stop)
    # It is the only worker, and the coordinators say so.
    if status != 1 or "no other worker is there to take them" not in said:
        wrong.append(f"preStop of the worker: {status}: {said}")
    return wrong


def accepted(node: Node, path: Path, given: dict[str, str]) -> list[str]:
    """The jobs of the chart: doctor, and `bench fabric` from one pod to another, for less time than they take by themselves."""
    # Without what tells Jobs of other values apart.
    jobs = {container.workload.rpartition("-")[0]: container for container in load(path, given)}
    doctor, server, client = (jobs[f"verbs3-{name}"] for name in ("doctor", "fabric-server", "fabric-client"))
    wrong = []
    status, said = node.run(doctor, doctor.words)
    # 1: that something could be better, as on a machine without NICs.
    if status not in (0, 1) or "transport" not in said:
        wrong.append(f"{doctor}: {status}: {said}")
    words = client.words[: client.words.index("--sizes")] + ["--sizes", "64KiB", "--seconds", "0.1", "--ways", "tcp", "--no-plain"]
    process = node.start(server, server.words, node.folder / "fabric.log")
    node.processes.pop()
    began = time.monotonic()
    # As the Job does, until the server is there.
    while (status := (answer := node.run(client, words))[0]) != 0 and time.monotonic() - began < WITHIN:
        time.sleep(0.2)
    process.terminate()
    process.wait(timeout=WITHIN)
    if status != 0 or not re.search(r"tcp.*64KiB|64KiB.*tcp", answer[1].replace(" KiB", "KiB"), re.S):
        wrong.append(f"{client}: {answer[0]}: {answer[1]}\n{tail(node.folder / 'fabric.log')}")
    print(f"pods: the jobs of acceptance: doctor, and {len(answer[1].splitlines())} lines of bench fabric")
    return wrong


def without_mount(documents: list[dict], name: str) -> None:
    for pod in filter(None, map(pod_of, documents)):
        for container in pod["containers"]:
            container["volumeMounts"] = [mount for mount in container.get("volumeMounts", []) if mount["name"] != name]


def without_secret_files(documents: list[dict]) -> None:
    without_mount(documents, "secret")


def without_etcd_files(documents: list[dict]) -> None:
    without_mount(documents, "etcd")


def without_settings(documents: list[dict]) -> None:
    for pod in filter(None, map(pod_of, documents)):
        for container in pod["containers"]:
            container["env"] = [variable for variable in container.get("env", []) if not variable["name"].startswith("VERBS3_")]


# What is taken away, from whom, and what its check has to say.
TAKEN = [
    (without_secret_files, ("gateway", "worker", "coordinator"), "credentials.profile_file: can't read"),
    (without_secret_files, ("gateway", "worker", "coordinator"), "cluster.secret_file: can't read"),
    (without_secret_files, ("gateway",), "gateway.identities: can't read"),
    (without_etcd_files, ("coordinator",), "coordinator.store.ca_file: can't read"),
    (without_settings, ("worker",), "worker.id: is missing"),
]


def seen(path: Path, given: dict[str, str], verbs3: Path, folder: Path) -> list[str]:
    """That the check of a pod fails where something is missing: else it would show nothing."""
    wrong = []
    for number, (alter, roles, wanted) in enumerate(TAKEN):
        place = folder / f"taken-{path.name}-{number}"
        place.mkdir()
        node = Node(verbs3, place)
        for container in load(path, given, alter):
            if container.is_init or role(container)[0] not in roles:
                continue
            status, said = checked(node, container)
            if status != 2 or wanted not in said:
                wrong.append(f"{container}: {alter.__name__} is not noticed: {status}: {said}")
    return wrong


def etcd_words(etcd: Path, folder: Path, certificates: Path) -> list[str]:
    """One member, that wants the certificates which the manifest's members want."""
    manifest = next(one for one in read(KUBERNETES / "etcd.yaml") if one["kind"] == "StatefulSet")
    said, = pod_of(manifest)["containers"]
    place = {"/tls/ca.crt": "ca.crt", "/tls/tls.crt": "members.crt", "/tls/tls.key": "members.key"}
    flags = [word for word in said["command"] if word == "--client-cert-auth" or word.startswith(("--trusted-ca-file", "--cert-file", "--key-file"))]
    if len(flags) != 4:
        raise Broken(f"etcd of the manifest does not ask for certificates: {flags}")
    for path, name in place.items():
        flags = [word.replace(path, str(certificates / name)) for word in flags]
    return [str(etcd), "--data-dir", str(folder / "etcd"), "--listen-client-urls", "https://127.0.0.1:2379", "--advertise-client-urls",
            "https://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync", *flags]


def brought(folder: Path, identity: dict[str, str], certificates: Path) -> dict[str, str]:
    """The files that the README has its reader make before `kubectl create`."""
    keys = f"aws_access_key_id = {identity['access_key']}\naws_secret_access_key = {identity['secret_key']}\n"
    files = {"identities.toml": IDENTITIES, "cluster-secret": "a secret of the pods' test, long enough", "credentials": f"[default]\n{keys}"}
    return files | {f"etcd/{path.name}": path.read_text() for path in certificates.iterdir()}


@contextmanager
def surroundings(verbs3: Path, etcd: Path, folder: Path) -> Iterator[dict[str, str]]:
    """What pods need: a store, an etcd that wants certificates, and the files that a person brings along, which it gives."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    certificates = folder / "certificates"
    members = [f"verbs3-etcd-{number}.verbs3-etcd" for number in range(3)]
    subprocess.run([ROOT / "deploy/certificates.sh", certificates, *members], check=True)
    dev = subprocess.Popen([verbs3, "dev", "--no-demo", "--listen", STORE, "--dir", folder / "store", "--ready-file", folder / "store.ready"],
                           stdin=subprocess.DEVNULL, stdout=open(folder / "store.log", "wb"), stderr=subprocess.STDOUT, env={"PATH": "/usr/bin:/bin"})
    member = subprocess.Popen(etcd_words(etcd, folder, certificates), stdin=subprocess.DEVNULL, stdout=open(folder / "etcd.log", "wb"), stderr=subprocess.STDOUT)
    try:
        began = time.monotonic()
        while not (folder / "store.ready").exists():
            if dev.poll() is not None or time.monotonic() - began > WITHIN:
                raise Broken("the store does not start: " + (folder / "store.log").read_text())
            time.sleep(0.05)
        identity = tomllib.loads((folder / "store/identities.toml").read_text())["identity"][0]
        yield brought(folder, identity, certificates)
    finally:
        for process in (dev, member):
            process.kill()
            process.wait()


def main(verbs3: Path, etcd: Path, folder: Path, jobs: Path | None = None) -> list[str]:
    wrong = []
    with surroundings(verbs3, etcd, folder) as given:
        paths = [KUBERNETES / file for file in ("coordinators.yaml", "nodes.yaml")]
        (folder / "cluster").mkdir()
        node = Node(verbs3, folder / "cluster")
        found = [container for path in paths for container in load(path, given)]
        for container in (one for one in found if not one.is_init):
            status, said = checked(node, container)
            name, file = role(container)
            print(f"pods: {container}: {said}")
            if (status, said) != (0, f"{file} is fine for {name}"):
                wrong.append(f"{container}: config check: {status}: {said}")
        print("pods: starting coordinator, worker, gateway")
        wrong += started(node, found, ["coordinator", "worker", "gateway"])
        if jobs:
            wrong += accepted(node, jobs, given)
        for path in paths:
            wrong += seen(path, given, verbs3, folder)
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 3, 4)
