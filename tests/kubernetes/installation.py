"""Installs the project on a cluster: by the commands of its documents, as they stand there, and with values for a small machine."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from api_server import HELD, hold, until
from one_machine import HUB
from pod_images import ETCD, OURS
from real_cluster import NODES, Cluster

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE, STORE = "verbs3", f"http://{HUB}:7480"
IDENTITY = {"access_key": "CLIENT", "secret_key": "a-secret-of-a-client"}
# It may read, and warm nothing.
READER = {"access_key": "READER", "secret_key": "a-secret-of-a-reader", "rights": ["read", "list"]}
RIGHTS = ["read", "write", "list", "delete", "warm"]
SMALL = {"requests": {"memory": "64Mi", "cpu": "20m"}, "limits": {"memory": "2Gi"}}
# How many pods there are of each, by the label `app`.
PODS = {"verbs3-etcd": 3, "verbs3-coordinator": 3, "verbs3-worker": NODES, "verbs3-gateway": NODES}
EXTRAS = {"verbs3-webhook": 2, "verbs3-controller": 1}


def identities(*entries: dict) -> str:
    return "\n".join(f'[[identity]]\nname = "{one["access_key"]}"\naccess_key = "{one["access_key"]}"\nsecret_key = "{one["secret_key"]}"\n'
                     f'allow = [{{ mount = "*", rights = {json.dumps(one.get("rights", RIGHTS))} }}]\n' for one in entries)


def documented(path: str, begin: str, end: str = "```") -> str:
    """The commands of a document, from what they begin with to what comes after them."""
    text = (ROOT / path).read_text(encoding="utf-8")
    start = text.index(begin)
    return text[start : text.index(end, start)]


def merge(values: dict, differing: dict) -> dict:
    """As Helm lays one file of values over another."""
    merged = dict(values)
    for name, value in differing.items():
        both = isinstance(value, dict) and isinstance(values.get(name), dict)
        merged[name] = merge(values[name], value) if both else value
    return merged


class Installation:
    def __init__(self, cluster: Cluster, folder: Path, store: dict):
        self.cluster, self.folder, self.store = cluster, folder, store
        self.digests = {image["repository"]: image["digest"] for image in cluster.images}

    def run(self, commands: str) -> str:
        """What a person types, with kubectl and helm at hand, in a folder that has the repository's deploy/."""
        programs = self.folder / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        for name, path in (("kubectl", self.cluster.programs.kubernetes / "kubectl"), ("helm", self.cluster.programs.helm)):
            if not (programs / name).exists():
                (programs / name).symlink_to(path)
        if not (self.folder / "deploy").exists():
            (self.folder / "deploy").symlink_to(ROOT / "deploy")
        env = self.cluster.environment() | {"KUBECONFIG": str(self.cluster.access)}
        env["PATH"] = f"{programs}:{ROOT / 'deploy'}:{env['PATH']}"
        done = subprocess.run(["bash", "-euc", f"umask 077\n{commands}"], cwd=self.folder, capture_output=True, text=True, env=env)
        if done.returncode != 0:
            raise SystemExit(f"ERROR: {commands}\n{done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def label_nodes(self, nodes: list[str], label: str = "verbs3=yes") -> None:
        """By the README's command: nobody else gives nodes their label."""
        command = documented("deploy/README.md", "kubectl label node ", "\n")
        hold("the README labels two nodes", command == "kubectl label node gpu-01 gpu-02 verbs3=yes", command)
        self.run(command.replace("gpu-01 gpu-02", " ".join(nodes)).replace("verbs3=yes", label))

    def make_secrets(self) -> None:
        """By the README's commands, from the files that it wants there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "identities.toml").write_text(identities(IDENTITY, READER))
        (self.folder / "credentials").write_text(
            f"[default]\naws_access_key_id = {self.store['access_key']}\naws_secret_access_key = {self.store['secret_key']}\n")
        self.run(documented("deploy/README.md", "kubectl create namespace verbs3\n"))
        self.run(documented("deploy/README.md", "kubectl label namespace verbs3 pod-security", "\n"))
        self.run(documented("deploy/README.md", "kubectl -n verbs3 create secret generic verbs3-accepted", "\n"))
        HELD.append("the README's commands make the Secrets")

    def make_webhook_certificate(self) -> str:
        """By the guide's commands; the authority, as the chart takes it."""
        self.run(documented("docs/kubernetes.md", "deploy/certificates.sh webhook-pki", "helm upgrade"))
        return base64.b64encode((self.folder / "webhook-pki/ca.crt").read_bytes()).decode()

    def values(self, authority: str) -> dict:
        credentials = {"kind": "profile", "profile": "default", "profile_file": "/etc/verbs3-secret/credentials"}
        return {
            "image": {"repository": OURS, "digest": self.digests[OURS]},
            "settings": {"ufs": [{"name": "store", "endpoint": STORE, "credentials": credentials}]},
            "etcd": {"image": {"repository": ETCD, "digest": self.digests[ETCD]}, "resources": SMALL},
            "coordinators": {"resources": SMALL},
            "nodes": {"rdma": {"mode": "off"}, "worker": {"memoryGiB": 1, "overheadGiB": 1, "cpu": "20m", "drainFor": "2m"},
                      "gateway": {"resources": SMALL}},
            "webhook": {"enabled": True, "tls": {"caBundle": authority}},
            "lending": {"enabled": True},
            "controller": {"enabled": True, "secrets": [{"namespace": "train", "names": ["verbs3-access-key", "verbs3-reader-key"]}]},
            "secrets": {"accepted": "verbs3-accepted"},
        }

    def install_chart(self, differing: dict | None = None, overlay: str = "", pods: dict[str, int] = PODS | EXTRAS, seconds: float = 420) -> None:
        """By the README's command; DIFFERING counts more than the values, and OVERLAY, of deploy/helm/overlays, more than these."""
        values = merge(self.values(self.make_webhook_certificate()), differing or {})
        # JSON is YAML, and quotes what YAML takes for a boolean.
        (self.folder / "my-values.yaml").write_text(json.dumps(values))
        command = documented("deploy/README.md", "helm install verbs3", "\n")
        notes = self.run(f"{command} -f deploy/helm/overlays/{overlay}" if overlay else command)
        counted = self.run(re.search(r"kubectl get nodes --no-headers -l .*", notes)[0])
        hold("the chart's notes count the nodes that it goes to", int(counted) == pods["verbs3-worker"], counted)
        self.await_pods(pods, seconds)

    def install_manifests(self) -> None:
        """deploy/kubernetes, with what its README wants written into it, and smaller."""
        place = self.folder / "manifests"
        shutil.copytree(ROOT / "deploy/kubernetes", place)
        config = (place / "verbs3.toml").read_text()
        for told, wanted in (("https://rgw.example:8443", STORE), ('"64GiB"', '"1GiB"'), ('mode = "auto"', 'mode = "off"')):
            hold(f"verbs3.toml has {told}", told in config)
            config = config.replace(told, wanted)
        (place / "verbs3.toml").write_text(config)
        kustomization = yaml.safe_load((place / "kustomization.yaml").read_text())
        for image in kustomization["images"]:
            image["digest"] = self.digests[image["name"]]
        patch = json.dumps([{"op": "replace", "path": "/spec/template/spec/containers/0/resources", "value": SMALL}])
        kustomization["patches"] = [{"target": {"kind": kind}, "patch": patch} for kind in ("DaemonSet", "StatefulSet")]
        (place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        self.run(documented("deploy/README.md", "kubectl apply -k deploy/kubernetes -n verbs3", "`").replace("deploy/kubernetes", "manifests"))
        self.await_pods(PODS)

    def ready_pods(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for pod in self.cluster.get("pods", "-n", NAMESPACE)["items"]:
            conditions = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
            if conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp"):
                name = pod["metadata"]["labels"].get("app", "")
                found[name] = found.get(name, 0) + 1
        return found

    def await_pods(self, expected: dict[str, int], seconds: float = 420) -> None:
        try:
            until(f"all pods are Ready: {expected}", lambda: self.ready_pods() == expected, seconds)
        except SystemExit as error:
            raise SystemExit(f"{error}\n{self.told_of_pods()}") from error
        HELD.append(f"{sum(expected.values())} pods are Ready")

    def told_of_pods(self) -> str:
        """What Kubernetes and the pods say of those that are not Ready."""
        kubectl = self.cluster.try_kubectl
        lines = [kubectl("get", "pods", "-A", "-o", "wide")[1]]
        for pod in self.cluster.get("pods", "-n", NAMESPACE)["items"]:
            name, states = pod["metadata"]["name"], pod.get("status", {}).get("containerStatuses", [])
            if states and all(one["ready"] for one in states):
                continue
            lines.append(f"--- {name}\n" + re.sub(r"(?s)^.*?(?=Conditions:)", "", kubectl("describe", "pod", "-n", NAMESPACE, name)[1])[-2500:])
            for previous in ((), ("--previous",)):
                lines.append(kubectl("logs", "-n", NAMESPACE, name, "--all-containers", "--tail=15", *previous)[1][-3000:])
        return "\n".join(lines)

    def pods_of(self, *roles: str) -> list[str]:
        labels = {f"verbs3-{role}" for role in roles}
        return [pod["metadata"]["name"] for pod in self.cluster.get("pods", "-n", NAMESPACE)["items"] if pod["metadata"]["labels"].get("app") in labels]

    def restarts(self) -> dict[str, int]:
        """Containers that were started more than once."""
        return {pod["metadata"]["name"]: count for pod in self.cluster.get("pods", "-n", NAMESPACE)["items"]
                if (count := sum(one["restartCount"] for one in pod["status"].get("containerStatuses", [])))}
