"""RDMA in pods: two nodes that are virtual machines with soft RDMA devices join the cluster, get their resource from the RDMA shared
device plugin, and the chart goes there with its overlay for host networks. Gateways reach workers of the other node by verbs or the
round fails; memory that a pod lends is written by the other node's worker; a fabric that goes silent is a slower read and an alert."""

import hashlib
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from api_server import HELD, hold, until
from installation import EXTRAS, NAMESPACE, PODS, Installation, documented
from pod_images import CLIENT, OURS, PAUSE, PLUGIN
from pod_lab import BUCKET, Lab, Readers, await_pod, client_of, delete_namespace, look_at_logs, make_train, roll_out, start_pod, try_objects, try_status
from real_cluster import NODES, SHOWN_NICS, VIRTUAL_NODES

ROOT = Path(__file__).resolve().parents[2]
OVERLAY, RESOURCE, VENDOR = "rdma-host-network.yaml", "rdma/hca_shared", "1af4"
# Of the nodes with RDMA alone; the taint of nodes with GPUs, which workers and gateways tolerate by default.
LABEL, TAINT = "verbs3=rdma", "nvidia.com/gpu=present:NoSchedule"
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
VALUES = {
    # What lets a worker write into memory that a client lends: off by default.
    "settings": {
        "verbs": {"windows": "auto"},
        # Pages are pinned one by one, which takes emulated processors minutes for a GiB.
        "worker": {"memory": {"capacity": "192MiB"}}, "gateway": {"memory": {"capacity": "96MiB"}},
    },
    # Kubelets ask over HTTP: there, a process for each question takes seconds. So no gateway takes over here (docs/proof.md).
    "nodes": {"nodeSelector": {"verbs3": "rdma"}, "gateway": {"takesOver": False}},
    "controller": {"enabled": False},
}
EXPECTED = PODS | {"verbs3-worker": VIRTUAL_NODES, "verbs3-gateway": VIRTUAL_NODES, "verbs3-webhook": EXTRAS["verbs3-webhook"]}
# Emulated processors start a process in seconds, and an arena in half a minute.
PATIENCE = 900
ROCE_PORT = 4791
COLLECTOR = "http://127.0.0.1:9090"
# Of a pod that lends: reads by memory that it has lent, and what the gateway says that it put there without a copy.
LARGE_KEY, LARGE_BYTES = "rdma/large", 16 << 20
PLACED = ("import hashlib, verbs3\nreader = verbs3.connect()\nfor _ in range({times}):\n"
          "    print(hashlib.sha256(reader.read('{bucket}', '{key}')).hexdigest())")


def join_nodes(lab: Lab) -> None:
    began = time.monotonic()
    disk = lab.cluster.import_images([image for image in lab.cluster.images if image["repository"] in (OURS, CLIENT, PAUSE, PLUGIN)])
    lab.serving = [lab.cluster.start_virtual_node(NODES + number, disk, TAINT) for number in range(1, VIRTUAL_NODES + 1)]
    lab.cluster.await_nodes(PATIENCE)
    print(f"pods: {VIRTUAL_NODES} virtual machines with RDMA are nodes after {time.monotonic() - began:.0f} s", flush=True)


def install_plugin(lab: Lab, installed: Installation) -> None:
    """Upstream's DaemonSet with the ConfigMap of deploy/kubernetes/rdma, for the NICs that are here, and the document's patch."""
    text = (ROOT / "deploy/kubernetes/rdma/shared-device-plugin.yaml").read_text(encoding="utf-8")
    hold("the plugin's configuration names the vendor of NICs", '"15b3"' in text)
    plugin = yaml.safe_load((Path(lab.said.plugin) / "daemonset.yaml").read_text())
    spec = plugin["spec"]["template"]["spec"]
    container, = spec["containers"]
    # The soft device belongs to no PCI function: it is shown as if it did (virtual_node.py).
    container["volumeMounts"].append({"name": "nics", "mountPath": "/sys/bus/pci/devices"})
    spec["volumes"].append({"name": "nics", "hostPath": {"path": SHOWN_NICS}})
    # Other nodes don't have the image.
    spec["nodeSelector"] = VALUES["nodes"]["nodeSelector"]
    lab.cluster.apply(yaml.safe_load(text.replace('"15b3"', f'"{VENDOR}"')), plugin)
    command = documented("deploy/rdma.md", "kubectl -n kube-system patch daemonset", "kubectl get nodes")
    installed.run(f"IMAGE={PLUGIN} DIGEST={installed.digests[PLUGIN]}\n{command}")
    patched = lab.cluster.get("daemonset", "-n", "kube-system", plugin["metadata"]["name"])["spec"]["template"]["spec"]
    hold("the document's patch has the plugin tolerate the taint of GPUs", patched["tolerations"] == TOLERATIONS, patched)
    hold("it names the image by its digest", [one["image"] for one in patched["containers"]] == [f"{PLUGIN}@{installed.digests[PLUGIN]}"], patched)

    def offered() -> list[str]:
        nodes = lab.cluster.get("nodes")["items"]
        return [one["metadata"]["name"] for one in nodes if one["status"]["allocatable"].get(RESOURCE) == "63"]

    try:
        until(f"{VIRTUAL_NODES} nodes offer {RESOURCE}", lambda: len(offered()) == VIRTUAL_NODES, PATIENCE)
    except SystemExit as error:
        told = lab.cluster.try_kubectl("logs", "-n", "kube-system", "-l", "name=rdma-shared-dp-ds", "--prefix", "--tail=30")
        seen = lab.cluster.try_kubectl("describe", "pods", "-n", "kube-system")[1]
        raise SystemExit(f"{error}\n{told}\n{seen[-3000:]}") from error
    HELD.append(f"the shared device plugin offers {RESOURCE} on nodes with RDMA alone")


def read_metrics(lab: Lab, port: int) -> dict[str, float]:
    """Sums over the serving nodes' pods of each series with its labels."""
    found: dict[str, float] = {}
    for node in lab.serving:
        with urllib.request.urlopen(f"http://{node.address}:{port}/metrics", timeout=20) as answer:
            for line in answer.read().decode().splitlines():
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    found[name] = found.get(name, 0) + float(value)
    return found


def sum_of(metrics: dict[str, float], pattern: str) -> float:
    return sum(value for name, value in metrics.items() if re.search(pattern, name))


def try_confinement(lab: Lab) -> None:
    """A pod has the devices by its resource, as a user that is not root, with no capability."""
    kubectl = lab.cluster.kubectl
    told = kubectl("exec", "-n", NAMESPACE, "ds/verbs3-worker", "--", "sh", "-c", "id -u; ls /dev/infiniband; grep CapEff /proc/self/status; ulimit -l")
    user, *devices, capabilities, limit = told.split("\n")[:-1]
    hold("the worker's user is not root, and has no capability", (user, capabilities.split()[1]) == ("9000", "0" * 16), told)
    hold("it has the devices of its NIC", {"rdma_cm", "uverbs0"} <= set(devices), told)
    hold("it may lock memory, as the runtime's unit allows", limit == "unlimited", told)


def try_acceptance(lab: Lab, installed: Installation) -> None:
    """The Jobs of deploy/rdma.md, by its commands."""
    command = documented("deploy/rdma.md", "helm template verbs3")
    command, _, logs = command.partition("kubectl -n verbs3 logs -l app=verbs3-doctor")
    server, client = lab.serving
    command = command.replace("doctorNodes=8", f"doctorNodes={VIRTUAL_NODES}").replace("gpu-01", server.name).replace("gpu-02", client.name)
    # Emulated, and little of it: what a real fabric gives can't be seen here.
    sizes = "--set-json 'acceptance.fabric.args=[\"--sizes\",\"64B,1MiB\",\"--seconds\",\"1\"]' --set acceptance.fabric.cpu=20m"
    installed.run(command.replace("--show-only", f"{sizes} --show-only"))
    kubectl = lab.cluster.try_kubectl
    jobs = [name for name in kubectl("get", "jobs", "-n", NAMESPACE, "-o", "name")[1].split() if "server" not in name]
    hold("there is a Job of doctor and one of the fabric's client", len(jobs) == 2, jobs)
    for job in jobs:
        # Soft devices are warned of, and doctor says so by its status.
        ends = {"Complete=True", "Failed=True"} if "doctor" in job else {"Complete=True"}
        try:
            until(f"{job} is over", lambda job=job, ends=ends: ends & set(conditions_of(lab, job)), PATIENCE)
        except SystemExit as error:
            raise SystemExit(f"{error}\n{kubectl('describe', 'pods', '-n', NAMESPACE, '-l', 'batch.kubernetes.io/job-name')[1][-6000:]}"
                             f"{kubectl('logs', '-n', NAMESPACE, '--prefix', '--tail=40', job)[1]}") from error
    doctor = kubectl("logs", "-n", NAMESPACE, "-l", "app=verbs3-doctor", "--prefix", "--tail=-1")[1]
    fabric = kubectl("logs", "-n", NAMESPACE, "-l", "app=verbs3-fabric-client", "--tail=-1")[1]
    print(doctor, fabric, sep="\n", flush=True)
    hold("doctor finds the device of each node", doctor.count("rxe0/1: active, ") == VIRTUAL_NODES, doctor)
    hold("doctor finds no failure on any node", doctor.count("0 failures") == VIRTUAL_NODES, doctor)
    hold("the fabric's Job says what verbs give", re.search(r"1 MiB +verbs .*\d", fabric), fabric)


def conditions_of(lab: Lab, job: str) -> list[str]:
    found = lab.cluster.get(job, "-n", NAMESPACE)["status"].get("conditions", [])
    return [f"{one['type']}={one['status']}" for one in found]


def pinned_to(node) -> dict:
    return {"nodeSelector": {"kubernetes.io/hostname": node.name}, "tolerations": TOLERATIONS}


def try_lent_memory(lab: Lab) -> None:
    """Bytes of the other node's worker are in a pod's memory without a copy by its gateway, by the gateway's own count."""
    body = bytes(range(256)) * (LARGE_BYTES // 256)
    client_of(lab.gateways()[0]).put_object(Bucket=BUCKET, Key=LARGE_KEY, Body=body)
    annotations = {"verbs3.io/credentials": "verbs3-access-key", "verbs3.io/lending": "true"}
    labels, expected = {"verbs3.io/inject": "enabled"}, hashlib.sha256(body).hexdigest()

    def read(name: str, times: int) -> dict[str, float]:
        before = read_metrics(lab, 9001)
        start_pod(lab, name, PLACED.format(times=times, bucket=BUCKET, key=LARGE_KEY), spec=pinned_to(lab.serving[1]), labels=labels, annotations=annotations)
        told = await_pod(lab, name, PATIENCE)
        hold(f"{name} reads what was written", told.split() == [expected] * times, told)
        after = read_metrics(lab, 9001)
        return {series: after[series] - before.get(series, 0) for series in after}

    # The first brings the blocks to their owners, and the lease.
    read("lends-first", 2)
    came = read("lends-again", 4)
    placed, copied = (sum_of(came, f"^verbs3_lending_bytes_{how}_total") for how in ("placed", "landed"))
    print(f"pods: of {placed + copied:.0f} bytes in lent memory, {placed:.0f} were put there by a worker, {copied:.0f} copied", flush=True)
    hold("bytes are put into lent memory by the other node's worker", placed > 0)
    hold("none is counted twice", placed + copied == 4 * LARGE_BYTES, (placed, copied))


class Fabric:
    """What the wires' other end does to RoCE: packets of its port go, all others stay."""

    def __init__(self):
        self.run("add", "table", "bridge", "fabric")
        self.run("add", "chain", "bridge", "fabric", "passing", "{ type filter hook forward priority 0; }")

    @staticmethod
    def run(*words: str) -> None:
        subprocess.run(["nft", *words], check=True)

    def silence(self) -> None:
        self.run("add", "rule", "bridge", "fabric", "passing", "udp", "dport", str(ROCE_PORT), "drop")

    def heal(self) -> None:
        self.run("flush", "chain", "bridge", "fabric", "passing")


class Collector:
    """A Prometheus on the hub, with the shipped rules."""

    def __init__(self, lab: Lab):
        jobs = [{"job_name": job, "static_configs": [{"targets": [f"{node.address}:{port}" for node in lab.serving]}]}
                for job, port in (("verbs3-gateway", 9001), ("verbs3-worker", 9401))]
        path = lab.folder / "prometheus.yml"
        path.write_text(json.dumps({"global": {"scrape_interval": "5s", "evaluation_interval": "5s"}, "scrape_configs": jobs,
                                    "rule_files": [str(ROOT / "deploy/prometheus/verbs3.rules.yaml")]}))
        lab.cluster.processes.start("prometheus", Path(lab.said.prometheus) / "prometheus", f"--config.file={path}",
                                    f"--storage.tsdb.path={lab.folder / 'series'}", f"--web.listen-address={urllib.parse.urlsplit(COLLECTOR).netloc}")

    def ask(self, expression: str) -> list[dict]:
        try:
            with urllib.request.urlopen(f"{COLLECTOR}/api/v1/query?" + urllib.parse.urlencode({"query": expression}), timeout=10) as answer:
                return json.loads(answer.read())["data"]["result"]
        except OSError:
            return []

    def hold_alerts(self, gateways: set[str], *names: str) -> None:
        """Each of the rules is about gateways among others, with its labels: it fires if it waits for nothing (`for`), and else is
        pending."""
        groups = yaml.safe_load((ROOT / "deploy/prometheus/verbs3.rules.yaml").read_text(encoding="utf-8"))["groups"]
        rules = {rule["alert"]: rule for group in groups for rule in group["rules"] if rule.get("alert") in names}
        hold("there are rules of these names", set(rules) == set(names), names)
        for name, rule in rules.items():
            expected = "pending" if "for" in rule else "firing"
            until(f"{name} is {expected}", lambda name=name, expected=expected: self.ask(f'ALERTS{{alertname="{name}",alertstate="{expected}"}}'), 60)
            found = [one["metric"] for one in self.ask(f'ALERTS{{alertname="{name}"}}')]
            hold(f"{name} is {expected}, and nothing else", {one["alertstate"] for one in found} == {expected}, found)
            hold(f"{name} has its rule's labels", all(rule["labels"].items() <= one.items() for one in found), found)
            hold(f"{name} is about gateways", gateways & {one["instance"] for one in found if one["job"] == "verbs3-gateway"}, found)

    def hold_panels(self) -> None:
        """Each query of the dashboard about devices returns something, but for those of counters that no soft device has, and of work
        that a NIC gave up: a peer that is silent is left before its NIC says so."""
        text = json.loads((ROOT / "deploy/grafana/verbs3.json").read_text(encoding="utf-8"))
        asked = [target["expr"].replace("$__rate_interval", "1m").replace("$cluster", ".*") for panel in text["panels"] for target in panel.get("targets", [])]
        of_devices = [one for one in asked if re.search(r"verbs3_verbs_(?!port_counter|errors_total)", one)]
        hold("the dashboard asks about devices", of_devices)
        left = set(of_devices)

        def filled() -> bool:
            left.difference_update([one for one in left if self.ask(one)])
            return not left

        try:
            until("data of each panel about devices", filled, 120)
        except SystemExit:
            pass
        hold(f"each of the dashboard's {len(of_devices)} queries about devices returns data", not left, left)


def try_silence(lab: Lab, collector: Collector) -> None:
    """RoCE goes silent between the nodes under readers: bytes come another way, and over verbs again when it is back."""
    fabric, before = Fabric(), read_metrics(lab, 9001)
    readers = Readers(lab, "silent-fabric")
    readers.start("of-all-gateways", lab.gateways(), 1)
    time.sleep(5)
    fabric.silence()
    time.sleep(30)
    fallbacks = sum_of(read_metrics(lab, 9001), "^verbs3_rdma_fallbacks_total") - sum_of(before, "^verbs3_rdma_fallbacks_total")
    hold("a silent fabric is left for another transport", fallbacks > 0)
    fabric.heal()
    key, _ = next(iter(lab.objects.items()))

    def transports() -> set[str]:
        answers = [client_of(endpoint).get_object(Bucket=BUCKET, Key=key) for endpoint in lab.gateways()]
        return {answer["ResponseMetadata"]["HTTPHeaders"]["x-verbs3-transport"] for answer in answers if answer["Body"].read()}

    until("gateways are back on verbs", lambda: "tcp" not in transports(), 180)
    readers.hold_no_errors("of-all-gateways")
    collector.hold_alerts({f"{node.address}:9001" for node in lab.serving}, "Verbs3FallsBackToTcp", "Verbs3DataOverTcp")


def try_node_without_rdma(lab: Lab) -> None:
    """A node of the label that has no device is a pod that waits and says for what, and none that serves by tcp unnoticed."""
    lab.cluster.kubectl("label", "node", "n1", LABEL, "--overwrite")

    def events() -> str:
        return lab.cluster.try_kubectl("get", "events", "-n", NAMESPACE, "--field-selector", "reason=FailedScheduling")[1]

    until("a worker without its resource says so", lambda: f"Insufficient {RESOURCE}" in events(), 120)
    HELD.append("a node without RDMA gets no worker, and the event says what is missing")
    lab.cluster.kubectl("label", "node", "n1", "verbs3-")


def try_rdma(lab: Lab, store: dict) -> None:
    join_nodes(lab)
    installed = Installation(lab.cluster, lab.folder / "rdma", store)
    installed.label_nodes([node.name for node in lab.serving], LABEL)
    install_plugin(lab, installed)
    lab.cluster.make_volumes(2)
    make_train(lab)
    installed.make_secrets()
    installed.install_chart(VALUES, OVERLAY, EXPECTED, PATIENCE)
    hold("no container was started twice", not (again := installed.restarts()), again)
    collector = Collector(lab)
    try_confinement(lab)
    try_objects(lab, {"shm", "verbs"})
    try_status(lab, installed)
    try_lent_memory(lab)
    try_silence(lab, collector)
    # With errors of a device among them, which there are by now.
    collector.hold_panels()
    try_acceptance(lab, installed)
    try_node_without_rdma(lab)
    readers = Readers(lab, "workers-over-verbs")
    readers.start("of-all-gateways", lab.gateways(), 1)
    roll_out(lab, installed, "verbs3-worker")
    readers.hold_no_errors("of-all-gateways")
    look_at_logs(lab)
    delete_namespace(lab)
