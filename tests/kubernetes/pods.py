"""The chart and the manifests under real kubelets: they are installed as the documents say, used, rolled out, broken, and deleted.

    pods.py --verbs3 V --kubernetes DIR --containerd DIR --etcd E --coredns C --helm H --dir DIR [--only chart|manifests]

Needs network, mount and PID namespaces of its own (pods.sh makes them) and DIR/images (pod_images.py). Prints what was held, and exits
1 at the first thing that does not hold."""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import boto3
import yaml
from botocore.config import Config
from botocore.exceptions import ClientError

from api_server import HELD, hold, until
from installation import IDENTITY, NAMESPACE, STORE, Installation, documented, identities
from one_machine import HUB
from pod_images import CLIENT, OURS
from real_cluster import NODES, Cluster, Programs

ROOT = Path(__file__).resolve().parents[2]
BUCKET, OBJECT_BYTES, OBJECTS = "demo", 3_000_000, 8
READ = ("import boto3, hashlib, os; answer = boto3.client('s3').get_object(Bucket='{bucket}', Key='{key}'); "
        "print(os.environ['AWS_ENDPOINT_URL_S3'], hashlib.sha256(answer['Body'].read()).hexdigest())")


# Reads by lent memory for some seconds, as a user that is not the gateway's; prints how often, and what was wrong.
LEND = ("import hashlib, os, time, verbs3\nreader = verbs3.connect()\nuntil, reads, wrong = time.monotonic() + {seconds}, 0, set()\n"
        "while time.monotonic() < until:\n    try:\n        found = hashlib.sha256(reader.read('{bucket}', '{key}')).hexdigest()\n"
        "        wrong |= {{found}} - {{'{expected}'}}\n    except Exception as error:\n        wrong.add(repr(error))\n"
        "    reads += 1\n    time.sleep(0.02)\nprint(os.getuid(), reads, sorted(wrong))")
OTHER_USER = 12345


class Lab:
    """The cluster, the store behind it, and what was installed."""

    def __init__(self, said, folder: Path):
        self.said, self.folder = said, folder
        images = json.loads((Path(said.dir) / "images/images.json").read_text())
        self.cluster = Cluster(Programs(said), folder, images)
        self.objects: dict[str, str] = {}

    def start(self) -> dict:
        """The cluster and the store; the store's key."""
        self.cluster.start()
        data = self.folder / "store"
        self.cluster.processes.start("store", self.said.verbs3, "dev", "--no-demo", "--listen", f"{HUB}:7480", "--dir", data,
                                     "--ready-file", self.folder / "store.ready", "--set", "worker.memory.capacity=256MiB",
                                     "--set", "gateway.memory.capacity=256MiB")
        until("the store is ready", (self.folder / "store.ready").exists)
        return tomllib.loads((data / "identities.toml").read_text())["identity"][0]

    def gateways(self) -> list[str]:
        return [f"http://{node.address}:9000" for node in self.cluster.nodes]


def client_of(endpoint: str, identity: dict = IDENTITY):
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=identity["access_key"],
                        aws_secret_access_key=identity["secret_key"], config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}))


def try_objects(lab: Lab) -> None:
    """Written by one gateway, read and listed by all."""
    clients = [client_of(endpoint) for endpoint in lab.gateways()]
    for number in range(OBJECTS):
        body, key = os.urandom(OBJECT_BYTES), f"pods/{number}"
        clients[number % NODES].put_object(Bucket=BUCKET, Key=key, Body=body)
        lab.objects[key] = hashlib.sha256(body).hexdigest()
    seen = set()
    for _ in range(2):
        for client in clients:
            for key, expected in lab.objects.items():
                answer = client.get_object(Bucket=BUCKET, Key=key)
                hold("a gateway gives what was written by another", hashlib.sha256(answer["Body"].read()).hexdigest() == expected)
                seen.add(answer["ResponseMetadata"]["HTTPHeaders"]["x-verbs3-transport"])
    hold("gateways reach their own node's worker by shared memory, and others by tcp", seen >= {"shm", "tcp"}, seen)
    for client in clients:
        listed = [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET, Prefix="pods/")["Contents"]]
        hold("a gateway lists what was written", listed == sorted(lab.objects), listed)


def try_status(lab: Lab, installed: Installation) -> None:
    command = documented("deploy/README.md", "kubectl -n verbs3 exec verbs3-coordinator-0", "\n")
    told = installed.run(command)
    hold("the README's status names every node and finds nothing to do", all(node.name in told for node in lab.cluster.nodes), told)
    print(told)


def run_pod(lab: Lab, name: str, script: str, **metadata) -> str:
    """A pod of the namespace `train` with boto3 and our package; what it said."""
    start_pod(lab, name, script, **metadata)
    return await_pod(lab, name)


def start_pod(lab: Lab, name: str, script: str, user: int | None = None, **metadata) -> None:
    digest = next(image["digest"] for image in lab.cluster.images if image["repository"] == CLIENT)
    container = {"name": "main", "image": f"{CLIENT}@{digest}", "command": ["python3", "-c", script],
                 "env": [{"name": "PYTHONPATH", "value": "/opt/client"}]}
    lab.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "train", **metadata},
                       "spec": {"restartPolicy": "Never", "containers": [container], "securityContext": {"runAsUser": user} if user else {}}})


def await_pod(lab: Lab, name: str) -> str:
    kubectl = lab.cluster.try_kubectl
    phase = lambda: kubectl("get", "pod", "-n", "train", name, "-o", "jsonpath={.status.phase}")[1]  # noqa: E731 # asked again and again
    until(f"pod {name} ends", lambda: phase() in ("Succeeded", "Failed"), 180)
    told = kubectl("logs", "-n", "train", name)[1].strip()
    hold(f"pod {name} succeeds", phase() == "Succeeded", told)
    return told


def try_webhook(lab: Lab) -> None:
    """A pod that opts in reads by the endpoint and the key that it is given."""
    lab.cluster.kubectl("create", "secret", "generic", "-n", "train", "verbs3-access-key", f"--from-literal=AWS_ACCESS_KEY_ID={IDENTITY['access_key']}",
                        f"--from-literal=AWS_SECRET_ACCESS_KEY={IDENTITY['secret_key']}")
    key, expected = next(iter(lab.objects.items()))
    told = run_pod(lab, "reader", READ.format(bucket=BUCKET, key=key), labels={"verbs3.io/inject": "enabled"},
                   annotations={"verbs3.io/credentials": "verbs3-access-key"})
    endpoint, _, digest = told.partition(" ")
    hold("a pod that opts in gets its node's endpoint", endpoint in lab.gateways(), told)
    hold("it reads an object by it", digest == expected, told)
    spec = lab.cluster.get("pod", "-n", "train", "reader")
    own = next(node for node in lab.cluster.nodes if node.name == spec["spec"]["nodeName"])
    hold("the endpoint is of the node that it runs on", endpoint == f"http://{own.address}:9000", endpoint)


def start_lender(lab: Lab, name: str, seconds: int) -> None:
    """A pod of another user than the gateway's, which lends its gateway memory and reads by it."""
    key, expected = next(iter(lab.objects.items()))
    script = LEND.format(bucket=BUCKET, key=key, expected=expected, seconds=seconds)
    annotations = {"verbs3.io/credentials": "verbs3-access-key", "verbs3.io/lending": "true"}
    start_pod(lab, name, script, user=OTHER_USER, labels={"verbs3.io/inject": "enabled"}, annotations=annotations)


def await_lender(lab: Lab, name: str) -> None:
    user, reads, wrong = await_pod(lab, name).split(" ", 2)
    print(f"pods: {name} read {reads} times by lent memory", flush=True)
    hold(f"{name} reads what was written, by lent memory", (user, wrong) == (str(OTHER_USER), "[]") and int(reads) > 20, wrong)


def try_lending(lab: Lab) -> None:
    start_lender(lab, "lender", 5)
    await_lender(lab, "lender")
    plain = run_pod(lab, "no-lender", "import os; print(os.environ.get('VERBS3_SOCKET'), os.path.exists('/run/verbs3-lending'))",
                    labels={"verbs3.io/inject": "enabled"})
    hold("a pod that does not ask sees no folder", plain == "None False", plain)


def preload(name: str, prefix: str, **spec) -> dict:
    return {"apiVersion": "verbs3.io/v1alpha1", "kind": "Preload", "metadata": {"name": name, "namespace": "train"},
            "spec": {"prefixes": [f"s3://{BUCKET}/{prefix}"], "secretName": "verbs3-access-key", **spec}}


def try_preload(lab: Lab) -> None:
    lab.cluster.apply(preload("train-2026", "pods/"))
    lab.cluster.kubectl("-n", "train", "wait", "preload/train-2026", "--for=condition=Complete", "--timeout=180s")
    status = lab.cluster.get("preload", "-n", "train", "train-2026")["status"]
    hold("a Preload runs to its end", (status["state"], status["objects"], status["bytes"]) == ("Done", OBJECTS, OBJECTS * OBJECT_BYTES), status)


def try_examples(lab: Lab) -> None:
    """The Job and the pod with an init container of deploy/kubernetes/examples, with what a person writes into them."""
    text = (ROOT / "deploy/kubernetes/examples/preload.yaml").read_text(encoding="utf-8")
    digests = {image["repository"]: image["digest"] for image in lab.cluster.images}
    for repository, wanted in ((OURS, OURS), ("registry.example/train", CLIENT)):
        text = re.sub(rf"{repository}@sha256:0+", f"{wanted}@{digests[wanted]}", text)
    examples = {one["kind"]: one for one in yaml.safe_load_all(text.replace("s3://train/2026/", f"s3://{BUCKET}/pods/")) if one}
    examples["Pod"]["spec"]["containers"][0]["command"] = ["true"]
    lab.cluster.kubectl("apply", "-n", "train", "-f", "-", given=json.dumps(examples["Job"]))
    lab.cluster.kubectl("apply", "-n", "train", "-f", "-", given=json.dumps(examples["Pod"]))
    try:
        lab.cluster.kubectl("-n", "train", "wait", "job/warm-train-2026", "--for=condition=Complete", "--timeout=120s")
        lab.cluster.kubectl("-n", "train", "wait", "pod/train", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    except SystemExit as error:
        raise SystemExit(f"{error}\n{lab.cluster.try_kubectl('describe', 'pods', '-n', 'train')[1]}") from error
    told = lab.cluster.kubectl("logs", "-n", "train", "train", "-c", "preload")
    # The init container goes on without its job: what it says has to be that it was done.
    hold("the init container of the example warms its prefix", "done" in told, told)
    HELD.append("the Job of the example warms its prefix")


class Readers:
    """Clients that read while something happens."""

    def __init__(self, lab: Lab, name: str):
        self.lab, self.folder = lab, lab.folder / f"readers-{name}"
        self.folder.mkdir()
        self.running: dict[str, subprocess.Popen] = {}

    def start(self, name: str, endpoints: list[str], attempts: int | str, node=None) -> None:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({
            "endpoints": endpoints, "attempts": attempts, "access": IDENTITY["access_key"], "secret": IDENTITY["secret_key"], "bucket": BUCKET,
            "objects": self.lab.objects, "stop": str(self.folder / "stop")}))
        words = [sys.executable, str(Path(__file__).resolve().parent / "reading_client.py"), str(path)]
        with (self.folder / f"{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen(node.inside(words) if node else words, stdout=subprocess.PIPE, stderr=log, text=True)

    def stop(self) -> dict[str, dict]:
        (self.folder / "stop").touch()
        told = {name: json.loads(process.communicate(timeout=120)[0]) for name, process in self.running.items()}
        for name, one in told.items():
            errors = one.pop("errors")
            print(f"pods: {self.folder.name} {name}: {one} and {len(errors)} errors", *errors[:5], sep="\n   ", flush=True)
            one["errors"] = errors
            hold(f"{self.folder.name} {name} reads nothing wrong", one["wrong"] == 0 and one["requests"] > 20, one)
        return told

    def hold_no_errors(self, *names: str) -> None:
        told = self.stop()
        for name in names:
            hold(f"{self.folder.name}: {name} sees no error in {told[name]['requests']} requests", not told[name]["errors"], told[name])


def roll_out(lab: Lab, installed: Installation, name: str) -> None:
    began = time.monotonic()
    lab.cluster.kubectl("-n", NAMESPACE, "rollout", "restart", f"daemonset/{name}")
    lab.cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"daemonset/{name}", "--timeout=280s")
    print(f"pods: {name} rolled out in {time.monotonic() - began:.0f} s; containers started again: {installed.restarts()}", flush=True)


def try_roll_outs(lab: Lab, installed: Installation) -> None:
    service = lab.cluster.get("service", "-n", NAMESPACE, "verbs3-gateways")["spec"]["clusterIP"]
    first = lab.cluster.nodes[0]
    readers = Readers(lab, "workers")
    readers.start("of-all-gateways", lab.gateways(), 1)
    readers.start("of-its-node", [lab.gateways()[0]], 1, first)
    roll_out(lab, installed, "verbs3-worker")
    readers.hold_no_errors("of-all-gateways", "of-its-node")
    events = lab.cluster.kubectl("get", "events", "-n", NAMESPACE)
    hold("every preStop drained its worker", "FailedPreStopHook" not in events, re.findall(r".*FailedPreStopHook.*", events))

    readers = Readers(lab, "gateways")
    of_the_service = [f"of-the-service-{number}" for number in range(3)]
    for name in of_the_service:
        readers.start(name, [f"http://{service}:9000"], "fresh", first)
    # A node has one gateway: between two of its pods nobody answers there. What that costs a client is told; one that tries again
    # for long enough sees nothing of it.
    readers.start("of-its-node", [lab.gateways()[0]], 12, first)
    readers.start("of-its-node-by-default", [lab.gateways()[0]], "default", first)
    start_lender(lab, "lender-of-a-roll-out", 120)
    roll_out(lab, installed, "verbs3-gateway")
    readers.hold_no_errors("of-its-node", *of_the_service)
    await_lender(lab, "lender-of-a-roll-out")


def look_at_logs(lab: Lab) -> None:
    """What pods that are there log as an error is one; warnings are told."""
    ours = "app in (verbs3-worker, verbs3-gateway, verbs3-coordinator, verbs3-webhook, verbs3-controller)"
    lines = lab.cluster.kubectl("logs", "-n", NAMESPACE, "-l", ours, "--prefix", "--tail=-1", "--max-log-requests=20").splitlines()
    warnings = Counter(message[1] for line in lines if '"WARN"' in line and (message := re.search(r'"message":"([^"]*)"', line)))
    print(f"pods: warnings in logs: {dict(warnings)}", flush=True)
    hold("no pod logs an error", not (errors := [line for line in lines if '"ERROR"' in line]), errors)


def kill_worker(lab: Lab, installed: Installation) -> None:
    """A worker's process, as the kernel ends it where memory is short."""
    node = lab.cluster.nodes[1]
    readers = Readers(lab, "killed-worker")
    readers.start("of-all-gateways", lab.gateways(), 1)
    time.sleep(3)
    process, = node.processes("/usr/local/bin/verbs3", "worker")
    os.kill(process, signal.SIGKILL)
    its = ("-l", "app=verbs3-worker", "--field-selector", f"spec.nodeName={node.name}")
    pod = lab.cluster.get("pods", "-n", NAMESPACE, *its)["items"][0]["metadata"]["name"]
    until("kubelet starts the worker again", lambda: installed.restarts().get(pod), 120)
    lab.cluster.kubectl("-n", NAMESPACE, "wait", "pod", pod, "--for=condition=Ready", "--timeout=120s")
    time.sleep(3)
    readers.hold_no_errors("of-all-gateways")


def rotate_key(lab: Lab, installed: Installation) -> None:
    """A Secret that changes is another identity within the time in which kubelets bring it, without a restart."""
    new = {"access_key": "NEWCLIENT", "secret_key": "another-secret-of-a-client"}
    (installed.folder / "identities.toml").write_text(identities(new))
    begin = "kubectl -n verbs3 create secret generic verbs3 "
    installed.run(documented("deploy/README.md", begin, "\n") + " --dry-run=client -o yaml | kubectl apply -f -")

    def takes(identity: dict) -> bool:
        return all(is_known(endpoint, identity) for endpoint in lab.gateways())

    began = time.monotonic()
    until("the new key is taken", lambda: takes(new), 180)
    print(f"pods: a new key is taken after {time.monotonic() - began:.0f} s")
    hold("the old key is refused", not any(is_known(endpoint, IDENTITY) for endpoint in lab.gateways()))
    (installed.folder / "identities.toml").write_text(identities(IDENTITY))
    installed.run(documented("deploy/README.md", begin, "\n") + " --dry-run=client -o yaml | kubectl apply -f -")
    until("the old key is taken again", lambda: takes(IDENTITY), 180)


def is_known(endpoint: str, identity: dict) -> bool:
    try:
        client_of(endpoint, identity).head_bucket(Bucket=BUCKET)
        return True
    except ClientError:
        return False


def delete_all(lab: Lab, installed: Installation) -> None:
    """Namespaces and the release go, with a job that runs."""
    cluster = lab.cluster
    client_of(STORE, installed.store).put_object(Bucket=BUCKET, Key="slow/a", Body=bytes(150_000_000))
    cluster.apply(preload("slow", "slow/", bandwidthBytesPerSecond=1 << 20))
    until("slow runs", lambda: cluster.get("preload", "-n", "train", "slow").get("status", {}).get("state") == "Running", 120)
    began = time.monotonic()
    cluster.kubectl("delete", "namespace", "train", "--timeout=240s")
    print(f"pods: a namespace with a running job went in {time.monotonic() - began:.0f} s")
    cluster.helm("uninstall", "verbs3", "-n", NAMESPACE, "--wait", "--timeout", "4m")
    delete_namespace(lab)
    kinds = "mutatingwebhookconfigurations,clusterroles,clusterrolebindings,crds"
    left = [one for one in cluster.kubectl("get", kinds, "-o", "name").splitlines() if "verbs3" in one]
    hold("of the release the definition alone is left, which Helm keeps", left == ["customresourcedefinition.apiextensions.k8s.io/preloads.verbs3.io"], left)
    cluster.kubectl("delete", "crd", "preloads.verbs3.io", "--timeout=60s")


def delete_namespace(lab: Lab) -> None:
    """Ours, and with it all pods: no kubelet has one left, no process runs on."""
    lab.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=240s")
    hold("the namespace is gone", lab.cluster.try_kubectl("get", "namespace", NAMESPACE)[0] != 0)
    hold("no process of ours is left on a node", not any(node.processes("/usr/local/bin/verbs3") for node in lab.cluster.nodes))


def try_chart(lab: Lab, store: dict) -> None:
    lab.cluster.make_volumes(0)
    lab.cluster.kubectl("create", "namespace", "train")
    installed = Installation(lab.cluster, lab.folder / "chart", store)
    installed.make_secrets()
    installed.install_chart()
    hold("no container was started twice", not (again := installed.restarts()), again)
    try_objects(lab)
    try_status(lab, installed)
    try_webhook(lab)
    try_lending(lab)
    try_preload(lab)
    try_examples(lab)
    try_roll_outs(lab, installed)
    kill_worker(lab, installed)
    rotate_key(lab, installed)
    try_status(lab, installed)
    look_at_logs(lab)
    delete_all(lab, installed)


def try_manifests(lab: Lab, store: dict) -> None:
    lab.cluster.make_volumes(1)
    installed = Installation(lab.cluster, lab.folder / "plain", store)
    installed.make_secrets()
    installed.install_manifests()
    try_objects(lab)
    try_status(lab, installed)
    delete_namespace(lab)


def tell_logs(folder: Path) -> None:
    """The control plane's and the nodes'; what pods say is told where they are looked at."""
    for path in [*sorted(folder.glob("*.log")), *sorted(folder.glob("n*/machine.log"))]:
        print(f"--- {path.relative_to(folder)}", *(line[:200] for line in path.read_text(errors="replace").splitlines()[-5:]), sep="\n", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("verbs3", "kubernetes", "containerd", "etcd", "coredns", "helm", "dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", choices=("chart", "manifests"))
    said = parser.parse_args()
    # As the first process of its namespace it would ignore it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ERROR: ended by SIGTERM"))
    folder = Path(said.dir) / "lab"
    folder.mkdir()
    lab = Lab(said, folder)
    began = time.monotonic()
    try:
        store = lab.start()
        print(f"pods: {NODES} nodes are ready after {time.monotonic() - began:.0f} s", flush=True)
        for name, tried in (("chart", try_chart), ("manifests", try_manifests)):
            if said.only in (None, name):
                tried(lab, store)
                print(f"pods: {name}: {len(set(HELD))} things held, {time.monotonic() - began:.0f} s after the start", flush=True)
    except BaseException:
        tell_logs(folder)
        raise
    finally:
        lab.cluster.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
