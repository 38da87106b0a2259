"""The chart and the manifests under real kubelets: they are installed as the documents say, used, rolled out, broken, and deleted.

    pods.py --verbs3 V --kubernetes DIR --containerd DIR --etcd E --coredns C --helm H --plugin DIR --prometheus DIR --dir DIR
            [--only chart|manifests|rdma]

Needs network, mount and PID namespaces of its own (pods.sh makes them) and DIR/images (pod_images.py). Prints what was held, and exits
1 at the first thing that does not hold."""

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import yaml
from botocore.exceptions import ClientError

from api_server import HELD, hold, until
from installation import IDENTITY, NAMESPACE, READER, STORE, Installation, documented, identities
from pod_images import CLIENT, OURS
from pod_lab import (BUCKET, OBJECT_BYTES, OBJECTS, Lab, Readers, await_lender, client_of, delete_namespace, look_at_logs, make_train, roll_out,
                     run_pod, start_lender, tell_logs, try_objects, try_status)
from rdma_pods import try_rdma
from real_cluster import NODES

ROOT = Path(__file__).resolve().parents[2]
READ = ("import boto3, hashlib, os; answer = boto3.client('s3').get_object(Bucket='{bucket}', Key='{key}'); "
        "print(os.environ['AWS_ENDPOINT_URL_S3'], hashlib.sha256(answer['Body'].read()).hexdigest())")


def try_webhook(lab: Lab) -> None:
    """A pod that opts in reads by the endpoint and the key that it is given."""
    key, expected = next(iter(lab.objects.items()))
    told = run_pod(lab, "reader", READ.format(bucket=BUCKET, key=key), labels={"verbs3.io/inject": "enabled"},
                   annotations={"verbs3.io/credentials": "verbs3-access-key"})
    endpoint, _, digest = told.partition(" ")
    hold("a pod that opts in gets its node's endpoint", endpoint in lab.gateways(), told)
    hold("it reads an object by it", digest == expected, told)
    spec = lab.cluster.get("pod", "-n", "train", "reader")
    own = next(node for node in lab.cluster.nodes if node.name == spec["spec"]["nodeName"])
    hold("the endpoint is of the node that it runs on", endpoint == f"http://{own.address}:9000", endpoint)


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
    lab.cluster.apply(preload("by-a-reader", "pods/", secretName="verbs3-reader-key"))
    refused = "jsonpath={.status.conditions[?(@.type=='Accepted')].reason}=Denied"
    lab.cluster.kubectl("-n", "train", "wait", "preload/by-a-reader", f"--for={refused}", "--timeout=60s")
    HELD.append("a Preload by a key that may not warm is denied, and says so")
    lab.cluster.kubectl("-n", "train", "delete", "preload/by-a-reader")


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
    lab.cluster.kubectl("apply", "-n", "train", "-f", "-", given=json.dumps(examples["CronJob"]))
    lab.cluster.kubectl("-n", "train", "create", "job", "warm-now", "--from=cronjob/warm-nightly")
    try:
        lab.cluster.kubectl("-n", "train", "wait", "job/warm-train-2026", "--for=condition=Complete", "--timeout=120s")
        lab.cluster.kubectl("-n", "train", "wait", "job/warm-now", "--for=condition=Complete", "--timeout=120s")
        lab.cluster.kubectl("-n", "train", "wait", "pod/train", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    except SystemExit as error:
        raise SystemExit(f"{error}\n{lab.cluster.try_kubectl('describe', 'pods', '-n', 'train')[1]}") from error
    told = lab.cluster.kubectl("logs", "-n", "train", "train", "-c", "preload")
    # The init container goes on without its job: what it says has to be that it was done.
    hold("the init container of the example warms its prefix", "done" in told, told)
    HELD.append("the Job and the CronJob of the examples warm their prefix")


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
    # The next pod takes over the sockets of the one that serves: also who has this address alone, and tries once, sees nothing of it.
    readers.start("of-its-node", [lab.gateways()[0]], 1, first)
    readers.start("of-its-node-anew", [lab.gateways()[0]], "fresh", first)
    start_lender(lab, "lender-of-a-roll-out", 120)
    roll_out(lab, installed, "verbs3-gateway")
    readers.hold_no_errors("of-its-node", "of-its-node-anew", *of_the_service)
    await_lender(lab, "lender-of-a-roll-out")


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
    (installed.folder / "identities.toml").write_text(identities(IDENTITY, READER))
    installed.run(documented("deploy/README.md", begin, "\n") + " --dry-run=client -o yaml | kubectl apply -f -")
    until("the old key is taken again", lambda: takes(IDENTITY), 180)


def rotate_secret(lab: Lab, installed: Installation) -> None:
    """The cluster's secret is another, by the README's steps under readers, and no process was started for it."""
    text = documented("deploy/README.md", "openssl rand -hex 32 > next-secret")
    preparing, *commands, ending = [step.strip() for step in text.replace("next-secret > both\n", "next-secret > both\n# wait\n").split("# wait\n")]
    roles = ("worker", "gateway", "coordinator")

    def logged() -> dict[str, int]:
        said = (lab.cluster.kubectl("logs", "-n", NAMESPACE, "-l", f"app=verbs3-{role}", "--prefix", "--tail=-1", "--max-log-requests=20") for role in roles)
        lines = [line for text in said for line in text.splitlines() if "the cluster's secret is in force" in line]
        return {pod: sum(line.startswith(f"[pod/{pod}/") for line in lines) for pod in installed.pods_of(*roles)}

    readers = Readers(lab, "secret")
    readers.start("of-all-gateways", lab.gateways(), 1)
    began = time.monotonic()
    installed.run(preparing)
    for command in commands:
        before = logged()
        installed.run(command)
        until(f"all processes have done: {command}", lambda before=before: all(count > before.get(pod, 0) for pod, count in logged().items()), 240)
    installed.run(ending)
    readers.hold_no_errors("of-all-gateways")
    print(f"pods: another secret of the cluster after {time.monotonic() - began:.0f} s")
    HELD.append("the cluster's secret is changed by the README's steps")


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


def try_chart(lab: Lab, store: dict) -> None:
    lab.cluster.make_volumes(0)
    make_train(lab)
    installed = Installation(lab.cluster, lab.folder / "chart", store)
    installed.label_nodes([node.name for node in lab.serving])
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
    rotate_secret(lab, installed)
    try_status(lab, installed)
    look_at_logs(lab)
    delete_all(lab, installed)


def try_manifests(lab: Lab, store: dict) -> None:
    lab.cluster.make_volumes(1)
    installed = Installation(lab.cluster, lab.folder / "plain", store)
    installed.label_nodes([node.name for node in lab.serving])
    installed.make_secrets()
    installed.install_manifests()
    try_objects(lab)
    try_status(lab, installed)
    delete_namespace(lab)


ROUNDS = {"chart": try_chart, "manifests": try_manifests, "rdma": try_rdma}


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("verbs3", "kubernetes", "containerd", "etcd", "coredns", "helm", "plugin", "prometheus", "dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", choices=ROUNDS)
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
        for name, tried in ROUNDS.items():
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
