#!/usr/bin/env python3
"""Starts the pods of deploy/kubernetes, by the built binary: each container's own command line, in a tree of folders that has what
the pod mounts and nothing else, with the environment and as the user that the manifest says. One node, one coordinator; the store
is `verbs3 dev`.

    pods.py VERBS3 ETCD DIR     in a mount and a network namespace of its own (run.sh makes them)

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
from pathlib import Path

import boto3
from botocore.config import Config

from manifests import Broken, Container, Objects, containers, objects, read

ROOT = Path(__file__).resolve().parents[2]
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

IDENTITIES = """\
[[identity]]
name = "client"
access_key = "CLIENT"
secret_key = "a-secret-of-a-client"
allow = [{ mount = "*", rights = ["read", "write", "list", "delete"] }]
"""


def image() -> tuple[int, list[str]]:
    """User and entry point of our image."""
    text = (ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8")
    return int(re.search(r"^USER (\d+)$", text, re.M)[1]), re.findall(r'"([^"]+)"', re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])


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
        return tree

    def mount(self, container: Container, tree: Path, mount) -> None:
        path = tree / mount.path.lstrip("/")
        if mount.host:
            shared = self.folder / "host" / mount.host.lstrip("/")
            shared.mkdir(parents=True, exist_ok=True)
            bind(shared, path)
            return
        path.mkdir(parents=True)
        path.chmod(0o755 if mount.files else 0o777)
        for name, content in mount.files.items():
            (path / name).write_text(content, encoding="utf-8")
            (path / name).chmod(mount.mode)
            if container.fs_group is not None and self.owned:
                os.chown(path / name, 0, container.fs_group)

    def start(self, container: Container, words: list[str], log: Path) -> subprocess.Popen:
        tree = self.tree(container)

        def become() -> None:
            os.chroot(tree)
            os.chdir("/")
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (MEMLOCK, MEMLOCK))
            if self.owned:
                os.setgroups([] if container.fs_group is None else [container.fs_group])
                os.setgid(0 if container.user == 0 else 999)
                os.setuid(container.user)

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


def names() -> dict[str, str]:
    """Every host that a configuration names. Of the coordinators the first is there; one etcd is all its members."""
    text = "".join(path.read_text(encoding="utf-8") for path in KUBERNETES.glob("*.toml"))
    found = re.findall(r'://([a-z0-9.-]+):', text) + re.findall(r'address = "([a-z0-9.-]+):', text)
    is_other = re.compile(r"coordinator-[1-9]")
    return {name: NOWHERE if is_other.search(name) else "127.0.0.1" for name in found} | {NODE: "127.0.0.1"}


def load(path: Path, store: dict[str, str], alter=lambda documents: None) -> list[Container]:
    """The containers of a manifest, whose ConfigMaps and Secrets are made as its head says, or else as the README does."""
    text = path.read_text(encoding="utf-8")
    commands = text if "create configmap" in text else (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    made: Objects = objects(commands, KUBERNETES, store | {"identities.toml": IDENTITIES, "cluster-secret": "a secret of the pods' test, long enough"})
    # What a test's machine has not: the store, 64 GiB, and more nodes than one.
    for entries in made.values():
        for name, content in entries.items():
            content = re.sub(r"https://rgw\.example:\d+", f"http://{STORE}", content).replace("64GiB", "256MiB")
            entries[name] = re.sub(r"workers = \[.*?\n\]", f'workers = [{{ id = "{NODE}", address = "{NODE}:9400" }}]', content, flags=re.S)
    documents = read(path)
    alter(documents)
    fields = {"metadata.name": "verbs3-coordinator-0", "spec.nodeName": NODE, "status.hostIP": "127.0.0.1"}
    user, entrypoint = image()
    return containers(path, documents, made, fields, user, entrypoint)


def role(container: Container) -> tuple[str, str]:
    """A container's role and file."""
    return container.words[1], container.words[container.words.index("--config") + 1]


def checked(node: Node, container: Container) -> tuple[int, str]:
    name, file = role(container)
    return node.run(container, [container.words[0], "config", "check", file, "--role", name])


def put_and_get() -> None:
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9000", aws_access_key_id="CLIENT", aws_secret_access_key="a-secret-of-a-client",
                          region_name="us-east-1", config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}))
    body = os.urandom(1 << 20)
    client.put_object(Bucket="demo", Key="pods", Body=body)
    if client.get_object(Bucket="demo", Key="pods")["Body"].read() != body:
        raise Broken("the gateway gives back other bytes than it was given")


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


def without_store_keys(documents: list[dict]) -> None:
    for document in documents:
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            container.pop("envFrom", None)


def without_secret_files(documents: list[dict]) -> None:
    for document in documents:
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            container["volumeMounts"] = [mount for mount in container.get("volumeMounts", []) if mount["name"] != "secret"]


def without_settings(documents: list[dict]) -> None:
    for document in documents:
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            container["env"] = [variable for variable in container.get("env", []) if not variable["name"].startswith("VERBS3_")]


# What is taken away, from whom, and what its check has to say.
TAKEN = [
    (without_store_keys, ("gateway", "worker", "coordinator"), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is not set"),
    (without_secret_files, ("gateway",), "gateway.identities: can't read"),
    (without_settings, ("worker",), "worker.id: is missing"),
    (without_settings, ("gateway", "worker", "coordinator"), "cluster.secret: "),
]


def seen(path: Path, store: dict[str, str], verbs3: Path, folder: Path) -> list[str]:
    """That the check of a pod fails where something is missing: else it would show nothing."""
    wrong = []
    for number, (alter, roles, wanted) in enumerate(TAKEN):
        place = folder / f"taken-{path.name}-{number}"
        place.mkdir()
        node = Node(verbs3, place)
        for container in load(path, store, alter):
            if container.is_init or role(container)[0] not in roles:
                continue
            status, said = checked(node, container)
            if status != 2 or wanted not in said:
                wrong.append(f"{container}: {alter.__name__} is not noticed: {status}: {said}")
    return wrong


def main(verbs3: Path, etcd: Path, folder: Path) -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    dev = subprocess.Popen([verbs3, "dev", "--no-demo", "--listen", STORE, "--dir", folder / "store", "--ready-file", folder / "store.ready"],
                           stdin=subprocess.DEVNULL, stdout=open(folder / "store.log", "wb"), stderr=subprocess.STDOUT, env={"PATH": "/usr/bin:/bin"})
    members = subprocess.Popen([etcd, "--data-dir", folder / "etcd", "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls",
                                "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380"],
                               stdin=subprocess.DEVNULL, stdout=open(folder / "etcd.log", "wb"), stderr=subprocess.STDOUT)
    wrong = []
    try:
        began = time.monotonic()
        while not (folder / "store.ready").exists():
            if dev.poll() is not None or time.monotonic() - began > WITHIN:
                raise Broken("the store does not start: " + (folder / "store.log").read_text())
            time.sleep(0.05)
        identity = tomllib.loads((folder / "store/identities.toml").read_text())["identity"][0]
        store = {"AWS_ACCESS_KEY_ID": identity["access_key"], "AWS_SECRET_ACCESS_KEY": identity["secret_key"]}
        shapes = [("cluster", ["coordinators.yaml", "nodes.yaml"], ["coordinator", "worker", "gateway"])]
        for shape, files, order in shapes:
            paths = [KUBERNETES / file for file in files if (KUBERNETES / file).exists()]
            if not paths:
                continue
            (folder / shape).mkdir()
            node = Node(verbs3, folder / shape)
            found = [container for path in paths for container in load(path, store)]
            for container in (one for one in found if not one.is_init):
                status, said = checked(node, container)
                name, file = role(container)
                print(f"pods: {container}: {said}")
                if (status, said) != (0, f"{file} is fine for {name}"):
                    wrong.append(f"{container}: config check: {status}: {said}")
            print(f"pods: starting {', '.join(order)} of {' and '.join(files)}")
            wrong += started(node, found, order)
            for path in paths:
                wrong += seen(path, store, verbs3, folder)
    finally:
        for process in (dev, members):
            process.kill()
            process.wait()
    for what in wrong:
        print(f"ERROR: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*(Path(word).resolve() for word in sys.argv[1:])))
