"""What a chart's documents have to be, beyond the API's schema: told of the documents themselves, not of their text. Each promise has a
change that breaks it (`unnoticed`), so that none can pass unseen. Knows no values of the chart."""

import copy
import json
import re
from pathlib import Path

import yaml

from manifests import pod_of
from verdict import Broken

ROOT = Path(__file__).resolve().parents[2]
RULES, DASHBOARD = ROOT / "deploy/prometheus/verbs3.rules.yaml", ROOT / "deploy/grafana/verbs3.json"
COLLECTORS = ROOT / "deploy/prometheus"
# No liveness probe before this many seconds: memory of hundreds of GiB is registered meanwhile.
START_SECONDS = 300
# Roles that register memory, or wait for who does.
SLOW = {"worker", "gateway", "coordinator"}

Documents = list[dict]
Labels = dict[str, str]


def of_kind(documents: Documents, kind: str) -> Documents:
    return [one for one in documents if one["kind"] == kind]


def question(probe: dict) -> dict:
    """What a probe asks, however often."""
    return {how: probe[how] for how in ("httpGet", "exec") if how in probe}


def probes(documents: Documents) -> list[str]:
    """Containers whose liveness is looked at before they had time to start."""
    wrong = []
    for document in documents:
        for container in (pod_of(document) or {}).get("containers", []):
            name = f"{document['metadata']['name']}/{container['name']}"
            start, alive = container.get("startupProbe"), container.get("livenessProbe")
            if container["name"] in SLOW and not start:
                wrong.append(f"{name} has no startupProbe")
            if not start:
                continue
            if not alive or question(start) != question(alive):
                wrong.append(f"{name}: its startupProbe asks something else than its livenessProbe")
            if container["name"] in SLOW and start["periodSeconds"] * start["failureThreshold"] < START_SECONDS:
                wrong.append(f"{name} has less than {START_SECONDS} seconds to start")
    return wrong


def relabelled(labels: Labels, steps: list[dict]) -> Labels | None:
    """What a Prometheus makes of a target's labels; None: it drops the target. Of the actions `replace`, `keep` and `drop`, in both spellings."""
    labels = dict(labels)
    for step in steps:
        step = {re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key): value for key, value in step.items()}
        source = ";".join(labels.get(name, "") for name in step.get("source_labels", []))
        match = re.fullmatch(step.get("regex", "(.*)"), source)
        action = step.get("action", "replace")
        if (action == "keep" and not match) or (action == "drop" and match):
            return None
        if action == "replace" and match:
            labels[step["target_label"]] = match.expand(re.sub(r"\$(\d)", r"\\\1", step.get("replacement", "$1")))
        elif action not in ("keep", "drop", "replace"):
            raise Broken(f"relabelling by {action} is not known here")
    return labels


def looked_at() -> re.Pattern:
    """The jobs that the alert of processes which don't answer looks at."""
    found, = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if rule["alert"] == "Verbs3ProcessDown"]
    return re.compile(re.search(r'job=~"([^"]+)"', found)[1])


def told(labels: Labels | None, cluster: str) -> list[str]:
    """What alerts would miss of a target of pod gpu-01's."""
    if labels is None:
        return ["is dropped"]
    wrong = []
    if not looked_at().fullmatch(labels.get("job", "")):
        wrong.append(f"has the job {labels.get('job')!r}, which Verbs3ProcessDown does not look at")
    if labels.get("instance") != "gpu-01":
        wrong.append(f"has the instance {labels.get('instance')!r}, which is no node")
    if labels.get("cluster") != cluster:
        wrong.append(f"is of the cluster {labels.get('cluster')!r}, not {cluster!r}")
    return wrong


ADMIN_PORTS = {"gateway": "9001", "worker": "9401", "coordinator": "9501", "webhook": "9601", "controller": "9701", "etcd": "2381"}


def discovered(role: str, address: str = "10.0.0.1") -> Labels:
    """A pod of a role, as a Prometheus finds it: a gateway on the host's network lists no ports."""
    found = {"__meta_kubernetes_pod_annotation_prometheus_io_scrape": "true", "__meta_kubernetes_pod_annotation_prometheus_io_port": ADMIN_PORTS[role],
             "__meta_kubernetes_pod_label_app": f"verbs3-{role}", "__meta_kubernetes_pod_node_name": "gpu-01", "__meta_kubernetes_pod_ip": address}
    if role == "gateway":
        return found | {"__address__": address, "instance": address}
    return found | {"__meta_kubernetes_pod_container_port_name": "admin", "__address__": host_port(address, ADMIN_PORTS[role]), "instance": "10.0.0.1:9401"}


def host_port(address: str, port: str) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def at_its_address(role: str, steps: list[dict], said: Labels, cluster: str) -> list[str]:
    """What is wrong with the targets of a role, by either kind of address, after these steps."""
    wrong = []
    for address in ("10.0.0.1", "fd00::1"):
        labels = relabelled(discovered(role, address) | said, steps)
        wrong += told(labels, cluster)
        if labels and labels["__address__"] != (wanted := host_port(address, ADMIN_PORTS[role])):
            wrong.append(f"is asked at {labels['__address__']}, not {wanted}")
    if relabelled(discovered(role) | said | {"__meta_kubernetes_pod_container_init": "true", "__meta_kubernetes_pod_container_port_name": ""}, steps) and role == "gateway":
        wrong.append("is an init container's")
    return wrong


def monitored(documents: Documents, cluster: str) -> list[str]:
    """Targets of PodMonitors that alerts miss. The operator calls the job NAMESPACE/NAME, in a namespace that may have any name."""
    wrong, jobs = [], []
    for monitor in of_kind(documents, "PodMonitor"):
        name = monitor["metadata"]["name"]
        role = monitor["spec"]["selector"]["matchLabels"]["app"].removeprefix("verbs3-")
        ports = [port["name"] for one in documents for container in (pod_of(one) or {}).get("containers", []) for port in container.get("ports", [])
                 if one["spec"]["template"]["metadata"]["labels"].get("app") == f"verbs3-{role}"]
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            if "port" in endpoint and endpoint["port"] not in ports:
                wrong.append(f"PodMonitor {name}: no pod of {role} has a port {endpoint['port']}")
            said, steps = {"job": f"cache/{name}"}, endpoint.get("relabelings", [])
            wrong += [f"PodMonitor {name}: a target {what}" for what in at_its_address(role, steps, said, cluster)]
            labels = relabelled(discovered(role) | said, steps)
            jobs.append((labels or {}).get("job"))
    if len(set(jobs)) != len(jobs):
        wrong.append(f"PodMonitors share jobs: {jobs}")
    return wrong


def collected() -> list[str]:
    """The same of the collectors that have no operator."""
    pods, = yaml.safe_load((COLLECTORS / "kubernetes.yml").read_text())["scrape_configs"]
    wrong = [f"kubernetes.yml: a target {what}" for role in ("gateway", "worker", "coordinator", "webhook", "controller")
             for what in at_its_address(role, pods["relabel_configs"], {"job": pods["job_name"]}, "verbs3")]
    for one in yaml.safe_load((COLLECTORS / "prometheus.yml").read_text())["scrape_configs"]:
        if not looked_at().fullmatch(one["job_name"]):
            wrong.append(f"prometheus.yml: Verbs3ProcessDown does not look at {one['job_name']}")
        wrong += [f"prometheus.yml: {one['job_name']} has no cluster" for static in one["static_configs"] if static.get("labels", {}).get("cluster") != "verbs3"]
    return wrong


def dashboards(documents: Documents) -> list[str]:
    """ConfigMaps for Grafana's sidecar that don't hold the dashboard."""
    found = [one for one in of_kind(documents, "ConfigMap") if one["metadata"]["name"] == "verbs3-dashboard"]
    wrong = [f"ConfigMap verbs3-dashboard is labelled {one['metadata']['labels']}" for one in found if one["metadata"]["labels"].get("grafana_dashboard") != "1"]
    return wrong + ["ConfigMap verbs3-dashboard is not deploy/grafana/verbs3.json" for one in found
                    if json.loads(one["data"]["verbs3.json"]) != json.loads(DASHBOARD.read_text())]


# Who connects to a port of a worker (docs/host-tuning.md): coordinators have it load, pin and forget.
WORKER_PEERS = {"verbs3-gateway", "verbs3-worker", "verbs3-coordinator"}


def admitted(documents: Documents) -> list[str]:
    """Peers of workers whom a NetworkPolicy keeps out."""
    wrong = []
    for policy in of_kind(documents, "NetworkPolicy"):
        if policy["spec"]["podSelector"].get("matchLabels", {}).get("app") != "verbs3-worker":
            continue
        peers = set()
        for rule in policy["spec"]["ingress"]:
            if 9400 in [port["port"] for port in rule["ports"]]:
                for one in rule["from"]:
                    peers |= {app for wanted in one["podSelector"]["matchExpressions"] if wanted["key"] == "app" for app in wanted["values"]}
        if peers != WORKER_PEERS:
            wrong.append(f"{policy['metadata']['name']} admits {sorted(peers)} at 9400, and not {sorted(WORKER_PEERS)}")
    return wrong


def priorities(documents: Documents) -> list[str]:
    """PriorityClasses that a pod of this chart leaves out."""
    return [f"{one['metadata']['name']} is not of the priority {made['metadata']['name']}" for made in of_kind(documents, "PriorityClass")
            for one in documents if pod_of(one) and pod_of(one).get("priorityClassName") != made["metadata"]["name"]]


def schedulable(documents: Documents) -> list[str]:
    """Pods of nodes that the usual taint of nodes with GPUs keeps off."""
    return [f"{one['metadata']['name']} does not tolerate nvidia.com/gpu" for one in of_kind(documents, "DaemonSet")
            if not any(said.get("key") in (None, "nvidia.com/gpu") for said in pod_of(one).get("tolerations", []))]


def structure(documents: Documents, cluster: str) -> list[str]:
    return (probes(documents) + monitored(documents, cluster) + dashboards(documents) + priorities(documents) + schedulable(documents)
            + admitted(documents))


def altered(documents: Documents, kind: str, path: list, value) -> Documents:
    """With a value at a path of every document of a kind; None: without it."""
    changed = copy.deepcopy(documents)
    for one in of_kind(changed, kind):
        place = one
        for step in path[:-1]:
            place = place[step]
        if value is None:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = value
    return changed


CONTAINER = ["spec", "template", "spec", "containers", 0]
ENDPOINT = ["spec", "podMetricsEndpoints", 0]
# A change for each promise: one that goes unnoticed shows that nothing is checked.
CHANGES = [
    ("DaemonSet", [*CONTAINER, "startupProbe"], None, "no startupProbe"),
    ("StatefulSet", [*CONTAINER, "startupProbe"], None, "no startupProbe"),
    ("DaemonSet", [*CONTAINER, "startupProbe", "failureThreshold"], 6, "seconds to start"),
    ("DaemonSet", [*CONTAINER, "startupProbe", "httpGet"], {"path": "/readyz", "port": 1}, "asks something else"),
    ("PodMonitor", [*ENDPOINT, "relabelings"], None, "does not look at"),
    ("PodMonitor", [*ENDPOINT, "relabelings", 1], {"targetLabel": "another"}, "is no node"),
    ("PodMonitor", [*ENDPOINT, "relabelings", 2, "replacement"], "another", "is of the cluster"),
    ("PodMonitor", [*ENDPOINT, "relabelings", 0, "replacement"], "verbs3", "share jobs"),
    ("PodMonitor", [*ENDPOINT, "port"], "metrics", "has a port metrics"),
    ("PodMonitor", [*ENDPOINT, "relabelings", -1], {"targetLabel": "another"}, "is asked at fd00::1"),
    ("ConfigMap", ["metadata", "labels"], {}, "is labelled"),
    ("ConfigMap", ["data"], {"verbs3.json": "{}"}, "is not deploy/grafana"),
    ("PriorityClass", ["metadata", "name"], "another", "is not of the priority"),
    ("DaemonSet", ["spec", "template", "spec", "tolerations"], [{"key": "another"}], "does not tolerate"),
]


def unnoticed(documents: Documents, cluster: str) -> list[str]:
    """Changes of documents with everything switched on that `structure` does not tell."""
    return [f"structure does not notice {kind} with {path} = {value}" for kind, path, value, what in CHANGES
            if not any(what in said for said in structure(altered(documents, kind, path, value), cluster))]
