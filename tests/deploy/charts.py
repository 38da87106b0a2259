#!/usr/bin/env python3
"""Renders the chart, by its defaults and with every overlay, and holds the result against the API's schema, against what hardened
pods keep, and against deploy/kubernetes.

    charts.py HELM VALIDATE DIR      VALIDATE: the program kubernetes-validate

Prints what is wrong and exits 1."""

import json
import re
import subprocess
import sys
from pathlib import Path

import yaml

from hardening import hardening, unnoticed
from manifests import pod_of
from structure import admitted, collected, structure, unnoticed as unnoticed_structure
from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
CHART, OVERLAYS, KUBERNETES = ROOT / "deploy/helm/verbs3", ROOT / "deploy/helm/overlays", ROOT / "deploy/kubernetes"
# Documents that name values of the chart.
DOCUMENTS = ("deploy/README.md", "deploy/rdma.md", "docs/kubernetes.md", "docs/capacity.md")
sys.path.insert(0, str(ROOT / "deploy/helm"))
import render  # noqa: E402 # where it is

DIGEST = "sha256:" + "1" * 64
JOBS = ["--set", "acceptance.enabled=true", "--set", "acceptance.fabric.server=gpu-01", "--set", "acceptance.fabric.client=gpu-02"]
CERTIFIED = ["--set", "tls.cluster.enabled=true"]
ISSUED = ["--set", "tls.cluster.certManager=true", "--set", "tls.cluster.issuer.name=nodes", "--set", "tls.gateway.enabled=true",
          "--set", "tls.gateway.certManager=true", "--set", "tls.gateway.issuer.name=clients", "--set", "tls.gateway.issuer.kind=ClusterIssuer"]
# Beside the overlays: what no overlay sets. A name, values, and what has to be in the result.
VARIANTS = [
    ("defaults", [], ["kind: DaemonSet", "--client-cert-auth"]),
    ("an etcd of one's own", ["--set", "etcd.own=false", "--set", "etcd.endpoints={https://etcd.example:2379}"], ["https://etcd.example:2379"]),
    ("pods' network", ["--set", "nodes.hostNetwork=false", "--set", "nodes.gateway.service=true"], ["status.podIP", "internalTrafficPolicy: Local"]),
    ("a network that workers are bound to", ["--set", "settings.tcp.bind_device=ib0"], ['bind_device = "ib0"']),
    ("secrets that are accepted besides", ["--set", "secrets.accepted=verbs3-accepted"],
     ['secret_accepted_file = "/etc/verbs3-secret/cluster-secrets-accepted"', "name: verbs3-accepted, items: [{ key: cluster-secrets,"]),
    ("web identity", ["--set", "secrets.store=", "--set-json", 'serviceAccount.annotations={"eks.amazonaws.com/role-arn":"arn:aws:iam::1:role/cache"}',
                      "--set-json", 'settings.ufs=[{"name":"store","endpoint":"https://s3.example","credentials":{"kind":"web_identity"}}]'],
     ["eks.amazonaws.com/role-arn", 'credentials = { kind = "web_identity" }']),
    ("disks", ["--set", "nodes.worker.disks[0].path=/mnt/a", "--set", "nodes.worker.disks[0].capacity=3TiB"],
     ['"memory":"68Gi"', 'folders = [{ capacity = "3TiB", path = "/var/lib/verbs3/disk-0/cache" }]']),
    ("operator", ["--set", "monitoring.podMonitor=true", "--set", "monitoring.prometheusRule=true"], ["kind: PodMonitor", "alert: Verbs3WorkerGone"]),
    ("dashboard", ["--set", "monitoring.dashboard=true"], ["name: verbs3-dashboard"]),
    ("more time to start", ["--set", "nodes.worker.startSeconds=3601", "--set", "coordinators.startSeconds=900"], ["failureThreshold: 1801 }", "failureThreshold: 450 }"]),
    ("a priority of the chart's own", ["--set", "priorityClass.create=true", "--set", "priorityClass.value=5000", "--set", "priorityClass.preemptionPolicy=Never"],
     ["kind: PriorityClass", "value: 5000", "preemptionPolicy: Never"]),
    ("scheduling", ["--set", "nodes.priorityClassName=infrastructure", "--set", "nodes.tolerations[0].operator=Exists"],
     ["priorityClassName: infrastructure", 'tolerations: [{"operator":"Exists"}]']),
    ("webhook", ["--set", "webhook.enabled=true", "--set", "webhook.tls.caBundle=Q0E="], ["kind: MutatingWebhookConfiguration", "caBundle: Q0E=", "args: [webhook,"]),
    ("webhook by cert-manager", ["--set", "webhook.enabled=true", "--set", "webhook.tls.certManager=true"], ["kind: Certificate", "cert-manager.io/inject-ca-from"]),
    ("HTTPS for clients", ["--set", "tls.gateway.enabled=true", "--set", "tls.gateway.secret=s3"], ["secretName: s3,", 'certificate = "/etc/verbs3-gateway/tls.crt"']),
    ("certificates of processes", CERTIFIED, ['mode = "require"', "exec verbs3 worker drain", "path: /etc/verbs3-cluster, type: Directory", "value: https://$(POD_NAME)"]),
    ("certificates that are on their way", ["--set", "tls.cluster.enabled=true", "--set", "tls.cluster.mode=accept"], ['mode = "accept"', "value: http://$(POD_NAME)"]),
    ("certificates by cert-manager", [*CERTIFIED, *ISSUED, *JOBS], ["verbs3://verbs3/gateway/gateways", "verbs3://verbs3/coordinator/coordinators", "kind: ClusterIssuer"]),
    ("console", ["--set", "console.enabled=true"], ["secretName: verbs3-console,", 'users = "/etc/verbs3-console/console-users.toml"']),
    ("controller", ["--set", "controller.enabled=true", "--set", "controller.secrets[0].namespace=train", "--set", "controller.secrets[0].names={key}"],
     ["CustomResourceDefinition", 'resourceNames: ["key"]', "name: verbs3-gateways"]),
    ("controller with an endpoint of one's own", ["--set", "controller.enabled=true", "--set", "controller.endpoint=http://s3.example:9000"],
     ['endpoint = "http://s3.example:9000"']),
    ("jobs", JOBS, ["kind: Job", '"bench","fabric"']),
    ("jobs of another pool", [*JOBS, "--set", "pools[0].name=a", "--set", "pools[1].name=b", "--set", "pools[1].rdma.resources.rdma/b=1", "--set", "acceptance.pool=b"],
     ["configMap: { name: verbs3-b }", '"memory":"1Gi","rdma/b":1']),
    ("jobs over RDMA", [*JOBS, "--set", "nodes.rdma.mode=on"], ['"--ways","verbs,tcp"']),
    ("jobs that wait", [*JOBS, "--set", "acceptance.fabric.idle=true"], ['command: [sleep, "1740"]']),
    ("jobs over other networks", [*JOBS, "--set", "acceptance.fabric.railDevices={net1,net2}"], ["for device in net1 net2"]),
]
# Everything that structure.py looks at, in a cluster of another name than the default.
WATCHED = ["--set", "monitoring.podMonitor=true", "--set", "monitoring.dashboard=true", "--set", "priorityClass.create=true",
           "--set", "settings.cluster.name=train", "--set", "webhook.enabled=true", "--set", "webhook.tls.caBundle=Q0E=", "--set", "controller.enabled=true"]
# Values that have to be refused, and what has to be said of them.
REFUSED = [
    (["--set", "nodes.bogus=1"], "bogus"),
    (["--set", "image.digest="], "has no digest"),
    (["--set", "image.digest=sha256:12"], "image/digest"),
    (["--set", "nodes.rdma.mode=maybe"], "nodes/rdma/mode"),
    (["--set", "nodes.rdma.networks=sriov"], "rdma.networks is for pods of the pod network"),
    (["--set", "etcd.own=false"], "etcd.endpoints"),
    (["--set", "coordinators.replicas=2"], "coordinators/replicas"),
    (["--set", "nodes.worker.startSeconds=30"], "nodes/worker/startSeconds"),
    (["--set", "priorityClass.value=2000000000"], "priorityClass/value"),
    ([*CERTIFIED, "--set", "tls.cluster.certManager=true"], "tls.cluster.issuer.name"),
    (["--set", "tls.gateway.enabled=true", "--set", "tls.gateway.certManager=true"], "tls.gateway.issuer.name"),
    (["--set", "tls.gateway.enabled=true", "--set", "controller.enabled=true"], "controller.endpoint"),
    (["--set", "tls.gateway.enabled=true", "--set", "webhook.enabled=true", "--set", "webhook.tls.caBundle=Q0E="], "webhook.settings.endpoint"),
    (["--set", "settings.ufs=null"], "ufs"),
    (["--set", "webhook.enabled=true"], "webhook.tls.caBundle"),
    ([*JOBS, "--set", "pools[0].name=a", "--set", "acceptance.pool=b"], "no pool of `pools` is called"),
    (["--set", "lending.folder=/var/run"], "lending/folder"),
    (["--set", "lending.enabled=true", "--set", "nodes.socketsPath=/run/verbs3-lending"], "lending.folder is nodes.socketsPath"),
    (["--set", "controller.secrets[0].namespace=train"], "names"),
]
# Kinds that the API's own schemas don't have.
OTHERS = {"PodMonitor": "monitoring.coreos.com/v1", "PrometheusRule": "monitoring.coreos.com/v1",
          "NicClusterPolicy": "mellanox.com/v1alpha1", "HostDeviceNetwork": "mellanox.com/v1alpha1",
          "MacvlanNetwork": "mellanox.com/v1alpha1", "NetworkAttachmentDefinition": "k8s.cni.cncf.io/v1",
          "SriovNetworkNodePolicy": "sriovnetwork.openshift.io/v1", "SriovNetwork": "sriovnetwork.openshift.io/v1",
          "SriovIBNetwork": "sriovnetwork.openshift.io/v1",
          "NodeFeatureRule": "nfd.k8s-sigs.io/v1alpha1",
          "Issuer": "cert-manager.io/v1", "Certificate": "cert-manager.io/v1",
          "Preload": "verbs3.io/v1alpha1", "Kustomization": "kustomize.config.k8s.io/v1beta1"}


def documents(text: str) -> list[dict]:
    return [one for one in yaml.safe_load_all(text) if one]


def invalid(name: str, text: str, validate: Path, folder: Path) -> list[str]:
    """What the API would refuse of a text's documents."""
    wrong, known = [], []
    for one in documents(text):
        if one["kind"] not in OTHERS:
            known.append(one)
        elif one["apiVersion"] != OTHERS[one["kind"]]:
            wrong.append(f"{name}: {one['kind']} is of {OTHERS[one['kind']]}, not of {one['apiVersion']}")
    path = folder / (re.sub(r"\W+", "-", name) + ".yaml")
    path.write_text(yaml.safe_dump_all(known))
    done = subprocess.run([validate, "-k", "1.34", "--strict", path], capture_output=True, text=True)
    if known and done.returncode != 0:
        wrong.append(f"{name}: {(done.stdout + done.stderr).strip()}")
    return wrong


def mounted(name: str, text: str) -> list[str]:
    """Volumes that are mounted and not there, or there and not mounted; configurations that nobody makes."""
    wrong, found = [], documents(text)
    maps = {one["metadata"]["name"] for one in found if one["kind"] == "ConfigMap"}
    for one in found:
        pod = pod_of(one)
        if not pod:
            continue
        there = {volume["name"] for volume in pod.get("volumes", [])} | {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        used = {mount["name"] for container in pod.get("initContainers", []) + pod["containers"] for mount in container.get("volumeMounts", [])}
        if there != used:
            wrong.append(f"{name}: {one['metadata']['name']} mounts {sorted(used)} and has {sorted(there)}")
        wrong += [f"{name}: nobody makes ConfigMap {volume['configMap']['name']}" for volume in pod.get("volumes", [])
                  if "configMap" in volume and volume["configMap"]["name"] not in maps]
    return wrong


def cut_off(name: str, text: str) -> list[str]:
    """Pods behind a Service that end before it knows: connections that it leads to them meanwhile are refused. `preStop` holds their
    SIGTERM up. Headless Services lead nobody."""
    wrong, found = [], documents(text)
    selectors = [one["spec"]["selector"] for one in found if one["kind"] == "Service" and one["spec"].get("clusterIP") != "None"]
    for one in found:
        labels = one.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
        if pod_of(one) and any(selector.items() <= labels.items() for selector in selectors):
            wrong += [f"{name}: {one['metadata']['name']}/{container['name']} is behind a Service and has no preStop"
                      for container in pod_of(one)["containers"] if "preStop" not in container.get("lifecycle", {})]
    return wrong


def embedded(path: Path) -> list[str]:
    """Documents of JSON within a file's documents that are none."""
    wrong = []

    def look(value) -> None:
        if isinstance(value, dict):
            for one in value.values():
                look(one)
        elif isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                json.loads(value)
            except ValueError as error:
                wrong.append(f"{path.name}: {value[:60]}: {error}")

    for one in documents(path.read_text()):
        look(one)
    return wrong


def unoffered(overlays: dict[str, str], offers: str) -> list[str]:
    """Resources that overlays ask for and no file of deploy/kubernetes/rdma offers or says how to: pods would wait for ever."""
    asked = {(name, resource) for name, text in overlays.items() for resource in re.findall(r"\b(?:rdma|nvidia\.com)/(\w+):", text)}
    offered = set(re.findall(r'"?resourceName"?: "?(\w+)', offers))
    return [f"{name}: nothing in deploy/kubernetes/rdma offers {resource}" for name, resource in sorted(asked) if resource not in offered]


def unknown_values(text: str, values: dict) -> list[str]:
    """Names of values in a document that the chart has not, of those that begin as one of its values."""
    told = [word.partition("=")[0] for words in re.findall(r"--set(?:-json)? '?([^\s`]+)", text) for word in words.split(",")]
    files, unknown = {path.name for path in (ROOT / "deploy").rglob("*")}, []
    for name in told + re.findall(r"`([a-z]\w*(?:\.\w+)+)", text):
        first, *steps = re.sub(r"\[.*", "", name).split(".")
        if name in files or (first not in values and name not in told):
            continue
        place = values.get(first)
        for step in steps:
            # Empty maps, lists and `settings` are for anybody's words.
            if first == "settings" or place in ({}, []):
                break
            place = place.get(step) if isinstance(place, dict) else None
        if place is None:
            unknown.append(name)
    return unknown


def documented() -> list[str]:
    """What documents say of values, and files say by default, that is not so."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    wrong = [f"{path}: the chart has no value {name}" for path in DOCUMENTS for name in unknown_values((ROOT / path).read_text(encoding="utf-8"), values)]
    if unknown_values("`webhook.endpoint`, `webhook.settings.endpoint`, --set nodes.bogus.a=1,webhook.tls.x=2", values) != ["nodes.bogus.a", "webhook.tls.x", "webhook.endpoint"]:
        wrong.append("a value that the chart has not goes unnoticed")
    policies = {path.name: one["spec"] for path in (KUBERNETES / "rdma").glob("*.yaml") for one in documents(path.read_text()) if one["kind"] == "NicClusterPolicy"}
    if set(policies["network-operator.yaml"]) != {"rdmaSharedDevicePlugin"}:
        wrong.append("network-operator.yaml has more than the shared device plugin")
    parts = [part for spec in policies.values() for part in spec]
    if len(parts) != len(set(parts)):
        wrong.append(f"two files have one part of the network operator's policy: {sorted(parts)}")
    return wrong


def all_variants() -> list[tuple[str, list[str], list[str]]]:
    """Those of this file, and each overlay with jobs and without."""
    text = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    example = yaml.safe_load(re.search(r"^image: \{ repository.*?(?=^```)", text, re.M | re.S)[0])
    words = [word for name, value in example.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    variants = [*VARIANTS, ("the README's my-values.yaml", words, ['capacity = "256GiB"', 'endpoint = "https://rgw.example:8443"'])]
    for path in sorted(OVERLAYS.glob("*.yaml")):
        # What has to be in the result is said in the overlay: `# Renders: TEXT`.
        expected = re.findall(r"^# Renders: (.+)$", path.read_text(), re.M)
        variants += [(path.name, ["-f", str(path)], expected), (f"{path.name} with jobs", ["-f", str(path), *JOBS], expected)]
    return variants


def main(helm_path: Path, validate: Path, folder: Path) -> list[str]:
    helm, wrong = str(helm_path), []
    linted = subprocess.run([helm, "lint", "--strict", "--quiet", "--kube-version", render.KUBE_VERSION, CHART], capture_output=True, text=True)
    if linted.returncode != 0:
        wrong.append(f"helm lint: {linted.stdout}{linted.stderr}")
    variants = all_variants()
    for name, words, expected in variants:
        if not expected:
            wrong.append(f"{name}: says nowhere what it renders")
        text = render.template(helm, *words, "--set", f"image.digest={DIGEST}")
        wrong += [f"{name}: does not render {what}" for what in expected if what not in text]
        wrong += invalid(name, text, validate, folder) + mounted(name, text) + cut_off(name, text)
        wrong += [f"{name}: {what}" for one in documents(text) for what in hardening(one)]
        wrong += [f"{name}: {what}" for what in structure(documents(text), "verbs3")]
    for path in sorted((KUBERNETES / "examples").glob("*.yaml")):
        wrong += invalid(f"example {path.name}", path.read_text(), validate, folder)
    for path in sorted((KUBERNETES / "rdma").glob("*.yaml")):
        wrong += invalid(path.name, path.read_text(), validate, folder) + embedded(path)
    overlays = {path.name: path.read_text() for path in OVERLAYS.glob("*.yaml")}
    offers = "".join(path.read_text() for path in (KUBERNETES / "rdma").glob("*.yaml"))
    wrong += unoffered(overlays, offers)
    if len(unoffered(overlays, offers.replace("hca_shared", "another"))) < 2:
        wrong.append("overlays that ask for what nothing offers go unnoticed")
    for words, expected in REFUSED:
        try:
            render.template(helm, *words)
            wrong.append(f"{words} are taken")
        except SystemExit as refused:
            if expected not in str(refused):
                wrong.append(f"{words}: {refused}")
    gateway = next(one for one in documents(render.template(helm)) if one["metadata"]["name"] == "verbs3-gateway" and one["kind"] == "DaemonSet")
    wrong += unnoticed(gateway)
    watched = documents(render.template(helm, *WATCHED, "--namespace", "cache"))
    wrong += structure(watched, "train") + collected() + unnoticed_structure(watched, "train")
    pods_network = render.template(helm, "--set", "nodes.hostNetwork=false")
    if not admitted(documents(pods_network.replace(", verbs3-coordinator]", "]"))):
        wrong.append("a policy that keeps coordinators from workers goes unnoticed")
    if "VERBS3_WORKER__ADVERTISE" in render.template(helm, "--set", "settings.tcp.bind_device=ib0"):
        wrong.append("a worker that is bound to a device is told another address than the device's")
    wrong += documented()
    print(f"charts: {len(variants)} sets of values rendered, {len(REFUSED)} refused")
    if render.main(helm, is_check=True) != 0:
        wrong.append("deploy/kubernetes is not what the chart gives")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 3)
