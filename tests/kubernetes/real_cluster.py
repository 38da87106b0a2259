"""A Kubernetes on one machine: etcd, API server, controller manager, scheduler and CoreDNS in the namespaces of this process, and
nodes that are machines of their own (one_machine.py), each with containerd, kubelet and kube-proxy. No network plugin that enforces
policies, and no storage class: volumes are made beforehand."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from api_server import Processes, certificate, openssl, until
from one_machine import HUB, Machine, address_of, make_bridge, pods_of
from pod_images import PAUSE_NAME
from virtual_machine import SHARED, VirtualMachine

NODES = 3
# Nodes that join later, for a round that wants RDMA (rdma_pods.py).
VIRTUAL_NODES = 2
CGROUP = "/verbs3-pods"
# Rounds of installing, each with volumes of its own for etcd's members.
ROUNDS = 3
# Where a virtual node shows the devices of its NICs to the device plugin.
SHOWN_NICS = "/run/nics"
# Of a virtual node, for images and what containers write.
DISK_BYTES = 4 << 30
CLIENT, SERVER = "extendedKeyUsage=clientAuth\n", "extendedKeyUsage=serverAuth\n"
# Whom the control plane's parts and the nodes' proxies are to the API server.
ACCOUNTS = {"admin": "/O=system:masters/CN=admin", "manager": "/CN=system:kube-controller-manager", "scheduler": "/CN=system:kube-scheduler",
            "proxy": "/CN=system:kube-proxy"}
COREDNS = """\
.:53 {{
    bind {hub}
    errors
    cache 2
    ready {hub}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {access}
        ttl 2
        fallthrough in-addr.arpa
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


class Programs:
    """Where the programs are."""

    def __init__(self, said):
        self.kubernetes, self.containerd = Path(said.kubernetes), Path(said.containerd)
        self.etcd, self.coredns, self.helm = Path(said.etcd), Path(said.coredns), Path(said.helm)


class Cluster:
    def __init__(self, programs: Programs, folder: Path, images: list[dict], others: int = 0):
        self.programs, self.folder, self.images = programs, folder, images
        self.pki, self.access = folder / "pki", folder / "pki/admin.conf"
        self.processes, self.nodes = Processes(folder), []
        # Nodes beside the NODES machines of namespaces.
        self.others = others

    def start(self) -> None:
        make_bridge(NODES + self.others)
        self.make_accounts()
        self.start_control_plane()
        for number in range(1, NODES + 1):
            self.start_node(number)
        self.await_nodes(180)

    def await_nodes(self, seconds: float) -> None:
        until("all nodes are ready", lambda: self.look_at_nodes() == len(self.nodes), seconds)

    def make_accounts(self) -> None:
        self.pki.mkdir()
        names = f"IP:{HUB},IP:10.96.0.1,DNS:kubernetes.default.svc"
        certificate(self.pki, "server", "/CN=kube-apiserver", f"subjectAltName={names}\n{SERVER}")
        openssl("genrsa", "-out", "sa.key", "2048", folder=self.pki)
        nodes = {f"n{number}": f"/O=system:nodes/CN=system:node:n{number}" for number in self.all_numbers()}
        for name, subject in (ACCOUNTS | nodes).items():
            certificate(self.pki, name, subject, CLIENT)
            user = {"client-certificate": f"{self.pki}/{name}.crt", "client-key": f"{self.pki}/{name}.key"}
            cluster = {"server": f"https://{HUB}:6443", "certificate-authority": f"{self.pki}/ca.crt"}
            (self.pki / f"{name}.conf").write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}]}))

    def start_control_plane(self) -> None:
        pki, kubernetes, store = self.pki, self.programs.kubernetes, "http://127.0.0.1:2379"
        start = self.processes.start
        start("etcd", self.programs.etcd, "--data-dir", self.folder / "etcd", f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
              "--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync")
        start("apiserver", kubernetes / "kube-apiserver", f"--etcd-servers={store}", "--secure-port=6443", f"--advertise-address={HUB}",
              f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key",
              "--service-account-issuer=https://kubernetes.default.svc.cluster.local", f"--service-account-key-file={pki}/sa.key",
              f"--service-account-signing-key-file={pki}/sa.key", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
              "--service-cluster-ip-range=10.96.0.0/16", "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true",
              f"--kubelet-client-certificate={pki}/admin.crt", f"--kubelet-client-key={pki}/admin.key",
              # It is on no node, so that no kube-proxy leads it to Services: it asks webhooks at their pods.
              "--enable-aggregator-routing=true")
        until("the API server is ready", lambda: self.try_kubectl("get", "--raw", "/readyz")[1] == "ok", 120)
        start("controller-manager", kubernetes / "kube-controller-manager", f"--kubeconfig={pki}/manager.conf", f"--root-ca-file={pki}/ca.crt",
              f"--service-account-private-key-file={pki}/sa.key", "--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1")
        start("scheduler", kubernetes / "kube-scheduler", f"--kubeconfig={pki}/scheduler.conf", "--leader-elect=false", "--bind-address=127.0.0.1")
        (self.folder / "Corefile").write_text(COREDNS.format(hub=HUB, access=self.access))
        start("coredns", self.programs.coredns, "-conf", self.folder / "Corefile")

    def start_node(self, number: int) -> None:
        folder = self.folder / f"n{number}"
        path = self.describe_node(number, self.images, volumes=[str(self.volume_of(number, count)) for count in range(ROUNDS)])
        program = Path(__file__).resolve().parent / "node_machine.py"
        self.nodes.append(Machine(number, folder / "machine.log", ["python3", str(program), str(path)]))

    def describe_node(self, number: int, images: list[dict], **differing) -> Path:
        """The file for its first process."""
        name, folder = f"n{number}", self.folder / f"n{number}"
        folder.mkdir()
        said = {
            "name": name, "folder": str(folder), "logs": str(folder), "address": address_of(number), "pods": pods_of(number), "hub": HUB,
            "routes": [(pods_of(other), address_of(other)) for other in self.all_numbers() if other != number],
            "cgroup": f"{CGROUP}/{name}", "kubelet_root": f"{folder}/kubelet", "taints": "",
            "containerd": str(self.programs.containerd), "kubernetes": str(self.programs.kubernetes), "pause": PAUSE_NAME,
            "images": [(image["path"], image["repository"]) for image in images],
            "authority": f"{self.pki}/ca.crt", "kubelet_access": f"{self.pki}/{name}.conf", "proxy_access": f"{self.pki}/proxy.conf",
        }
        path = folder / "node.json"
        path.write_text(json.dumps(said | differing))
        return path

    def all_numbers(self) -> range:
        return range(1, NODES + self.others + 1)

    def import_images(self, images: list[dict]) -> Path:
        """The file of a disk with a folder of containerd's that has the images."""
        folder = self.folder / "imported"
        folder.mkdir()
        (folder / "said.json").write_text(json.dumps({
            "folder": str(folder), "logs": str(folder), "pause": PAUSE_NAME, "containerd": str(self.programs.containerd),
            "images": [(image["path"], image["repository"]) for image in images]}))
        program = Path(__file__).resolve().parent / "import_images.py"
        subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "python3", str(program), str(folder / "said.json")], check=True)
        disk = self.folder / "imported.disk"
        with disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-d", str(folder), str(disk)], check=True)
        shutil.rmtree(folder)
        return disk

    def start_virtual_node(self, number: int, disk: Path, taints: str) -> VirtualMachine:
        """A node that is a virtual machine with an RDMA device. What it writes is in its memory, but for its logs."""
        folder = self.folder / f"n{number}"
        path = self.describe_node(number, [], folder="/run/node", logs=SHARED, cgroup="/", kubelet_root="/var/lib/kubelet",
                                  taints=taints, nics=SHOWN_NICS)
        program = Path(__file__).resolve().parent / "virtual_node.py"
        # Without site: what a machine adds there takes seconds under emulation.
        words = ["/usr/bin/python3", "-s", "-S", "-B", str(program), str(path)]
        node = VirtualMachine(number, folder, folder / "machine.log", disk, words)
        self.nodes.append(node)
        return node

    def volume_of(self, number: int, count: int) -> Path:
        return self.folder / f"n{number}/volumes/etcd-{count}"

    def look_at_nodes(self) -> int:
        """How many are ready. One that has ended is an error."""
        for node in self.nodes:
            if node.outer.poll() is not None:
                raise SystemExit(f"ERROR: node {node.name} has ended: " + (self.folder / node.name / "machine.log").read_text()[-2000:])
        return self.try_kubectl("get", "nodes", "--no-headers")[1].count(" Ready ")

    def try_kubectl(self, *words, given: str | None = None, seconds: float = 300) -> tuple[int, str, str]:
        """What kubectl says, as the administrator: its status, output, errors."""
        command = [str(self.programs.kubernetes / "kubectl"), f"--kubeconfig={self.access}", *(str(word) for word in words)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds, env=self.environment())
        return done.returncode, done.stdout, done.stderr

    def kubectl(self, *words, given: str | None = None) -> str:
        status, output, errors = self.try_kubectl(*words, given=given)
        if status != 0:
            raise SystemExit(f"ERROR: kubectl {' '.join(str(word) for word in words)}: {status}: {output}{errors}")
        return output

    def get(self, *words) -> dict:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *documents: dict) -> None:
        self.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def environment(self) -> dict[str, str]:
        # Helm and kubectl keep their caches here.
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    def helm(self, *words) -> str:
        command = [str(self.programs.helm), f"--kubeconfig={self.access}", *(str(word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment())
        if done.returncode != 0:
            raise SystemExit(f"ERROR: {' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def make_volumes(self, count: int) -> None:
        """What a storage class makes for three members of etcd."""
        for number in range(1, NODES + 1):
            term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"n{number}"]}]}
            self.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"etcd-{count}-{number}"}, "spec": {
                "capacity": {"storage": "4Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": str(self.volume_of(number, count))}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})

    def end(self) -> None:
        for node in self.nodes:
            node.end()
        self.processes.stop_all()
