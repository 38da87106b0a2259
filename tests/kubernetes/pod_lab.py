"""What rounds of pods.py have in common: the cluster with the store behind it, its clients, readers and pods, and what all of them hold."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import boto3
from botocore.config import Config

from api_server import hold, until
from installation import IDENTITY, NAMESPACE, READER, Installation, documented
from one_machine import HUB, Machine
from pod_images import CLIENT
from real_cluster import VIRTUAL_NODES, Cluster, Programs

BUCKET, OBJECT_BYTES, OBJECTS = "demo", 3_000_000, 8


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
        self.cluster = Cluster(Programs(said), folder, images, VIRTUAL_NODES)
        # Those that have a worker and a gateway.
        self.serving = self.cluster.nodes
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
        return [f"http://{node.address}:9000" for node in self.serving]


def client_of(endpoint: str, identity: dict = IDENTITY):
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=identity["access_key"],
                        aws_secret_access_key=identity["secret_key"], config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}))


def try_objects(lab: Lab, transports: set[str] = frozenset({"shm", "tcp"})) -> None:
    """Written by one gateway, read and listed by all; gateways reach their own node's worker, and others, by these transports."""
    clients = [client_of(endpoint) for endpoint in lab.gateways()]
    for number in range(OBJECTS):
        body, key = os.urandom(OBJECT_BYTES), f"pods/{number}"
        clients[number % len(clients)].put_object(Bucket=BUCKET, Key=key, Body=body)
        lab.objects[key] = hashlib.sha256(body).hexdigest()
    seen = set()
    for _ in range(2):
        for client in clients:
            for key, expected in lab.objects.items():
                answer = client.get_object(Bucket=BUCKET, Key=key)
                hold("a gateway gives what was written by another", hashlib.sha256(answer["Body"].read()).hexdigest() == expected)
                seen.add(answer["ResponseMetadata"]["HTTPHeaders"]["x-verbs3-transport"])
    hold(f"gateways reach workers by {' and '.join(sorted(transports))}", seen >= transports, seen)
    for client in clients:
        listed = [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET, Prefix="pods/")["Contents"]]
        hold("a gateway lists what was written", listed == sorted(lab.objects), listed)


def try_status(lab: Lab, installed: Installation) -> None:
    command = documented("deploy/README.md", "kubectl -n verbs3 exec verbs3-coordinator-0", "\n")
    told = installed.run(command)
    hold("the README's status names every node and finds nothing to do", all(node.name in told for node in lab.serving), told)
    print(told)


def make_train(lab: Lab) -> None:
    """The namespace `train`, with a key of the client's for its pods."""
    lab.cluster.kubectl("create", "namespace", "train")
    for name, identity in (("verbs3-access-key", IDENTITY), ("verbs3-reader-key", READER)):
        lab.cluster.kubectl("create", "secret", "generic", "-n", "train", name, f"--from-literal=AWS_ACCESS_KEY_ID={identity['access_key']}",
                            f"--from-literal=AWS_SECRET_ACCESS_KEY={identity['secret_key']}")


def run_pod(lab: Lab, name: str, script: str, **metadata) -> str:
    """A pod of the namespace `train` with boto3 and our package; what it said."""
    start_pod(lab, name, script, **metadata)
    return await_pod(lab, name)


def start_pod(lab: Lab, name: str, script: str, user: int | None = None, spec: dict | None = None, **metadata) -> None:
    digest = next(image["digest"] for image in lab.cluster.images if image["repository"] == CLIENT)
    container = {"name": "main", "image": f"{CLIENT}@{digest}", "command": ["python3", "-c", script],
                 "env": [{"name": "PYTHONPATH", "value": "/opt/client"}]}
    lab.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "train", **metadata},
                       "spec": {"restartPolicy": "Never", "containers": [container], "securityContext": {"runAsUser": user} if user else {}} | (spec or {})})


def await_pod(lab: Lab, name: str, seconds: float = 180) -> str:
    kubectl = lab.cluster.try_kubectl
    phase = lambda: kubectl("get", "pod", "-n", "train", name, "-o", "jsonpath={.status.phase}")[1]  # noqa: E731 # asked again and again
    until(f"pod {name} ends", lambda: phase() in ("Succeeded", "Failed"), seconds)
    told = kubectl("logs", "-n", "train", name)[1].strip()
    hold(f"pod {name} succeeds", phase() == "Succeeded", told)
    return told


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


def look_at_logs(lab: Lab) -> None:
    """What pods that are there log as an error is one; warnings are told."""
    ours = "app in (verbs3-worker, verbs3-gateway, verbs3-coordinator, verbs3-webhook, verbs3-controller)"
    lines = lab.cluster.kubectl("logs", "-n", NAMESPACE, "-l", ours, "--prefix", "--tail=-1", "--max-log-requests=20").splitlines()
    warnings = Counter(message[1] for line in lines if '"WARN"' in line and (message := re.search(r'"message":"([^"]*)"', line)))
    print(f"pods: warnings in logs: {dict(warnings)}", flush=True)
    hold("no pod logs an error", not (errors := [line for line in lines if '"ERROR"' in line]), errors)


def delete_namespace(lab: Lab) -> None:
    """Ours, and with it all pods: no kubelet has one left, no process runs on."""
    lab.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=240s")
    hold("the namespace is gone", lab.cluster.try_kubectl("get", "namespace", NAMESPACE)[0] != 0)
    machines = [node for node in lab.cluster.nodes if isinstance(node, Machine)]
    hold("no process of ours is left on a node", not any(node.processes("/usr/local/bin/verbs3") for node in machines))


def tell_logs(folder: Path) -> None:
    """The control plane's and the nodes'; what pods say is told where they are looked at."""
    for path in [*sorted(folder.glob("*.log")), *sorted(folder.glob("n*/machine.log"))]:
        print(f"--- {path.relative_to(folder)}", *(line[:200] for line in path.read_text(errors="replace").splitlines()[-5:]), sep="\n", file=sys.stderr)
