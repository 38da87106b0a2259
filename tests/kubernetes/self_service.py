"""The webhook and the controller, as the chart sets them up, at a real API server; and whether it takes all of deploy/.

    self_service.py --verbs3 V --etcd E --helm H --apiserver A --dir DIR --definitions FOLDER... [--cert-manager C]

--definitions: of others' custom resources. Prints what was held, and exits 1 at the first thing that does not hold; DIR/not-proven
takes what could not be checked."""

import argparse
import base64
import http.client
import itertools
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from pathlib import Path

import boto3
import yaml
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from api_server import HELD, ApiServer, Processes, certificate, hold, until
from cert_manager import CertManager, try_injection, try_roles
from custom_resources import define, hold_resources
from free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "1" * 64
ALL = ["VERBS3_NODE_IP", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"]
OBJECTS, OBJECT_BYTES = 20, 200_000
PRELOADS = "/apis/verbs3.io/v1alpha1/namespaces/train/preloads"


def rendered(helm: str, *words: str) -> list[dict]:
    command = [helm, "template", "verbs3", str(ROOT / "deploy/helm/verbs3"), "--namespace", "verbs3", "--kube-version", "1.34.0",
               "--set", f"image.digest={DIGEST}", *words]
    return [one for one in yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout) if one]


class Lab:
    def __init__(self, said, folder: Path):
        self.said, self.folder = said, folder
        self.processes = Processes(folder)
        self.api = ApiServer(self.processes, folder, said.etcd, said.apiserver)

    def namespace(self, name: str, labels: dict | None = None) -> None:
        one = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}
        hold(f"namespace {name} is made", self.api.make(one).status == 201)

    def pod(self, namespace: str, name: str, labels=None, annotations=None, container=None, **spec) -> dict:
        one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
               "spec": {"containers": [{"name": "main", "image": "x", **(container or {})}], **spec}}
        made = self.api.make(one, namespace)
        hold(f"pod {name} is created", made.status == 201, made)
        return made

    def admin(self, port: int, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as told:
                return told.read().decode()
        except (OSError, http.client.HTTPException):
            # Where nobody listens yet, Linux may connect a client to itself.
            return ""


def names(pod: dict, index: int = 0, group: str = "containers") -> list[str]:
    return [one["name"] for one in pod["spec"][group][index].get("env", [])]


def try_webhook(lab: Lab) -> None:
    """What pods get, and that they are created without it."""
    ca = base64.b64encode((lab.api.pki / "ca.crt").read_bytes()).decode()
    documents = rendered(lab.said.helm, "--set", "webhook.enabled=true", "--set", f"webhook.tls.caBundle={ca}", "--set", "lending.enabled=true")
    config = next(one for one in documents if one["kind"] == "MutatingWebhookConfiguration")
    text = next(one for one in documents if one["metadata"]["name"] == "verbs3-webhook" and one["kind"] == "ConfigMap")["data"]["webhook.toml"]
    certificate(lab.api.pki, "webhook", "/CN=verbs3-webhook", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
    port, admin = free_port(), free_port()
    path = lab.folder / "webhook.toml"
    # The chart's own file, but for where the files are and what is free here.
    path.write_text(text.replace("/etc/verbs3-webhook/tls.", f"{lab.api.pki}/webhook.").replace("0.0.0.0:9600", f"127.0.0.1:{port}")
                    .replace("0.0.0.0:9601", f"127.0.0.1:{admin}"))
    lab.processes.start("webhook", lab.said.verbs3, "webhook", "--config", path)
    until("the webhook is ready", lambda: "ready" in lab.admin(admin, "/readyz"))
    for one in config["webhooks"]:
        # There is no network of Services here.
        one["clientConfig"] = {"url": f"https://127.0.0.1:{port}/inject", "caBundle": ca}
    hold("the webhook's configuration is taken", lab.api.make(config).status == 201)

    lab.namespace("train", {"verbs3.io/inject": "enabled"})
    lab.namespace("other")
    tries = itertools.count()
    until("the API server asks the webhook", lambda: names(lab.pod("train", f"try-{next(tries)}")) == ALL)
    pod = lab.pod("train", "labelled", initContainers=[{"name": "fetch", "image": "x"}], hostNetwork=True)
    hold("containers of a labelled namespace get variables", names(pod) == ALL and names(pod, 0, "initContainers") == ALL, pod["spec"])
    env = pod["spec"]["containers"][0]["env"]
    hold("the address is the node's", env[0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP" and env[1]["value"] == "http://$(VERBS3_NODE_IP):9000")
    hold("pods of other namespaces get nothing", names(lab.pod("other", "plain")) == [])
    hold("a pod opts in by its own label", names(lab.pod("other", "in", labels={"verbs3.io/inject": "enabled"})) == ALL)
    hold("a pod opts out", names(lab.pod("train", "out", labels={"verbs3.io/inject": "disabled"})) == [])
    own = {"env": [{"name": "AWS_ENDPOINT_URL", "value": "http://own"}, {"name": "AWS_REGION", "value": "eu-1"}]}
    pod = lab.pod("train", "own", container=own, volumes=[{"name": "sockets", "emptyDir": {}}])
    hold("variables that are set stay", pod["spec"]["containers"][0]["env"] == own["env"], pod["spec"])
    hold("volumes stay", pod["spec"]["volumes"] == [{"name": "sockets", "emptyDir": {}}])
    pod = lab.pod("train", "from", container={"envFrom": [{"secretRef": {"name": "s"}}]})
    hold("beside envFrom nothing is added, and the author is told", names(pod) == [] and "envFrom" in str(pod.warnings), pod.warnings)
    hold("pods on Windows get nothing", names(lab.pod("train", "windows", os={"name": "windows"}, nodeSelector={"kubernetes.io/os": "windows"})) == [])
    crowd = [{"name": f"c{index}", "image": "x"} for index in range(250)]
    made = lab.api.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "crowd"}, "spec": {"containers": crowd}}, "train")
    hold("a pod of very many containers is created as it is", made.status == 201 and names(made) == [] and "containers" in str(made.warnings), made.warnings)
    pod = lab.pod("train", "keys", annotations={"verbs3.io/credentials": "mine"})
    hold("a Secret that is named gives the keys", pod["spec"]["containers"][0]["env"][4]["valueFrom"]["secretKeyRef"]["name"] == "mine")
    pod = lab.pod("train", "lends", annotations={"verbs3.io/lending": "true"}, volumes=[{"name": "data", "emptyDir": {}}])
    volumes, container = pod["spec"]["volumes"], pod["spec"]["containers"][0]
    hold("a pod that lends memory gets the folder of its node", volumes[0]["name"] == "data"
         and volumes[-1]["hostPath"] == {"path": "/run/verbs3-lending", "type": "DirectoryOrCreate"}, volumes)
    hold("its containers see it and are told", container["volumeMounts"][-1]["mountPath"] == "/run/verbs3-lending"
         and {"name": "VERBS3_SOCKET", "value": "/run/verbs3-lending/gateway.sock"} in container["env"], container)
    lab.namespace("strict", {"verbs3.io/inject": "enabled", "pod-security.kubernetes.io/enforce": "baseline"})
    hold("where Pod Security is baseline, pods that don't ask are made", names(lab.pod("strict", "plain")) == ALL)
    asks = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks", "annotations": {"verbs3.io/lending": "true"}},
            "spec": {"containers": [{"name": "main", "image": "x"}]}}
    refused = lab.api.make(asks, "strict")
    hold("and one that asks for the folder is refused, as documented", refused.status == 403 and "hostPath" in str(refused), refused)
    metrics = lab.admin(admin, "/metrics")
    hold("reviews are counted", 'verbs3_webhook_reviews_total{outcome="patched"}' in metrics and 'outcome="malformed"' not in metrics, metrics)

    memory = send_hostile(lab, port)
    # Of the chart's limit.
    hold("hostile bodies take no more memory than its pod has", memory < 384, f"{memory} MiB")
    hold("and pods are patched after them", names(lab.pod("train", "after")) == ALL)

    hold("the webhook ends by SIGTERM", lab.processes.stop("webhook") == 0)
    hold("without the webhook pods are created as they are", names(lab.pod("train", "without")) == [])
    deleted = lab.api.ask("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{config['metadata']['name']}")
    hold("its configuration goes", deleted.status == 200)


def send_hostile(lab: Lab, port: int) -> int:
    """Bodies that become much larger than they are, many at once; the webhook's memory at its most, in MiB."""
    head = ('{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",'
            '"resource":{"group":"","version":"v1","resource":"pods"},"object":')
    room = 3 * 1024 * 1024 - len(head) - 60
    objects = ['{"spec":{"containers":[' + ",".join(["{}"] * (room // 3)) + "]}}", "[" + ",".join(["[]"] * (room // 3)) + "]",
               "{" + ",".join(f'"{index:x}":0' for index in range(room // 10)) + "}", "[" * 100_000]

    def send(text: str) -> None:
        body = text.encode()
        try:
            with lab.api.stranger.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as one:
                one.sendall(b"POST /inject HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                while one.recv(65536):
                    pass
        except OSError:
            # It was cut, which is the webhook's right.
            return

    senders = [threading.Thread(target=send, args=(head + objects[index % 4] + "}}",)) for index in range(40)]
    for one in senders:
        one.start()
    for one in senders:
        one.join()
    status = Path(f"/proc/{lab.processes.running['webhook'].pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


def start_endpoint(lab: Lab, port: int) -> dict:
    """Gateway, worker, coordinator and a store in one process; its access key."""
    data = lab.folder / "data"
    lab.processes.start("dev", lab.said.verbs3, "dev", "--no-demo", "--listen", f"127.0.0.1:{port}", "--dir", data,
                        "--set", "worker.memory.capacity=64MiB", "--set", "gateway.memory.capacity=64MiB")
    until("the endpoint is ready", lambda: "ready" in lab.admin(port + 1, "/readyz"))
    found = [tomllib.loads(path.read_text()) for path in data.glob("*.toml")]
    return next(one["identity"][0] for one in found if "identity" in one)


class Preloads:
    """The resources of one namespace, and what the endpoint says of their jobs."""

    def __init__(self, lab: Lab, key: dict, endpoint: str):
        self.api, self.key, self.endpoint = lab.api, key, endpoint

    def make(self, name: str, secret: str = "verbs3-access-key", namespace: str = "train", **spec):
        body = {"apiVersion": "verbs3.io/v1alpha1", "kind": "Preload", "metadata": {"name": name, "namespace": namespace},
                "spec": {"prefixes": ["s3://demo/warm/"], "secretName": secret, **spec}}
        return self.api.make(body)

    def get(self, name: str):
        return self.api.ask("GET", f"{PRELOADS}/{name}")

    def delete(self, name: str) -> None:
        hold(f"{name} is deleted", self.api.ask("DELETE", f"{PRELOADS}/{name}").status == 200)

    def condition(self, name: str, kind: str) -> tuple:
        found = [one for one in self.get(name).get("status", {}).get("conditions", []) if one["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def await_condition(self, name: str, kind: str, value: str, reason: str) -> None:
        until(f"{name}: {kind} is {value} by {reason}", lambda: self.condition(name, kind) == (value, reason))
        HELD.append(f"{name}: {kind} is {value} by {reason}")

    def state(self, name: str) -> str:
        return self.get(name).get("status", {}).get("state", "")

    def job(self, uid: str) -> dict:
        request = AWSRequest("GET", f"{self.endpoint}/v1/preload/k8s-{uid}")
        S3SigV4Auth(Credentials(self.key["access_key"], self.key["secret_key"]), "s3", "us-east-1").add_auth(request)
        with urllib.request.urlopen(urllib.request.Request(request.url, headers=dict(request.headers)), timeout=20) as told:
            return json.loads(told.read())


def secret_of(name: str, access: str, secret: str, namespace: str = "train") -> dict:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "stringData": {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}}


def try_controller(lab: Lab) -> None:
    """Preload resources, from their making to their end, with the chart's roles and nothing more."""
    port = free_port()
    key = start_endpoint(lab, port)
    endpoint = f"http://127.0.0.1:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key["access_key"],
                          aws_secret_access_key=key["secret_key"], config=Config(retries={"total_max_attempts": 1}))
    for index in range(OBJECTS):
        client.put_object(Bucket="demo", Key=f"warm/{index}", Body=bytes([index]) * OBJECT_BYTES)

    lab.namespace("verbs3")
    names = "{verbs3-access-key,wrong,missing,other-key}"
    documents = rendered(lab.said.helm, "--set", "controller.enabled=true", "--set", "controller.secrets[0].namespace=train",
                         "--set", f"controller.secrets[0].names={names}")
    wanted = ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")
    for one in documents:
        if one["kind"] in wanted and (one["kind"] == "CustomResourceDefinition" or one["metadata"]["name"].startswith("verbs3-controller")):
            space = {"ServiceAccount": "verbs3"}.get(one["kind"], "")
            made = lab.api.make(one, space)
            hold(f"{one['kind']} of the chart is taken", made.status == 201, made)
    until("the resource is known", lambda: lab.api.ask("GET", PRELOADS).status == 200)
    token = lab.api.token("verbs3", "verbs3-controller")
    (lab.folder / "token").write_text(token)
    text = next(one for one in documents if one["metadata"]["name"] == "verbs3-controller" and one["kind"] == "ConfigMap")["data"]["controller.toml"]
    admin = free_port()
    path = lab.folder / "controller.toml"
    path.write_text(text.replace("http://verbs3-gateways.verbs3.svc:9000", endpoint).replace("0.0.0.0:9701", f"127.0.0.1:{admin}")
                    + f'\napi_server = "{lab.api.url}"\napi_ca_file = "{lab.api.pki}/ca.crt"\napi_token_file = "{lab.folder}/token"\n'
                    'look_every = "300ms"\nretry_max = "2s"\nstop_for = "4s"\n')
    lab.processes.start("controller", lab.said.verbs3, "controller", "--config", path)
    until("the controller is ready", lambda: "ready" in lab.admin(admin, "/readyz"))

    def asks(*words, **body) -> int:
        return lab.api.ask(*words, token=token, **body).status
    hold("the controller lists no Secrets", asks("GET", "/api/v1/namespaces/train/secrets") == 403 and asks("GET", "/api/v1/secrets") == 403)
    hold("it reads none but those that are named", asks("GET", "/api/v1/namespaces/train/secrets/database") == 403
         and asks("GET", "/api/v1/namespaces/other/secrets/verbs3-access-key") == 403)
    hold("it makes and deletes no resource", asks("DELETE", f"{PRELOADS}/x") == 403 and asks("POST", PRELOADS, body={}) == 403)

    preloads = Preloads(lab, key, endpoint)
    for name, access, secret, space in (("verbs3-access-key", key["access_key"], key["secret_key"], "train"),
                                        ("wrong", key["access_key"], "x" * 40, "train"),
                                        ("other-key", "NOSUCHKEY", "y" * 40, "train"), ("verbs3-access-key", key["access_key"], key["secret_key"], "other")):
        hold(f"Secret {name} is made", lab.api.make(secret_of(name, access, secret, space)).status == 201)
    made = preloads.make("night", endpoint="http://evil.example")
    hold("a Preload is made, and its endpoint is not kept", made.status == 201 and "endpoint" not in made["spec"], made)
    until("night is over", lambda: preloads.state("night") in ("Done", "Incomplete", "Failed"))
    done = preloads.get("night")
    status = done["status"]
    hold("it is done, and says of how much", (status["state"], status["objects"], status["bytes"]) == ("Done", OBJECTS, OBJECTS * OBJECT_BYTES), status)
    hold("the endpoint says the same", preloads.job(done["metadata"]["uid"])["counters"]["objects"] == OBJECTS)
    hold("its conditions hold", preloads.condition("night", "Complete") == ("True", "Done") and preloads.condition("night", "Accepted")[0] == "True")
    until("its finalizer goes", lambda: not preloads.get("night")["metadata"].get("finalizers"))
    events = lab.api.ask("GET", "/apis/events.k8s.io/v1/namespaces/train/events")["items"]
    hold("an event tells of it", "Done" in [one["reason"] for one in events if one["regarding"]["name"] == "night"], events)
    change = lab.api.ask("PATCH", f"{PRELOADS}/night", {"spec": {"prefixes": ["s3://demo/"]}}, kind="application/merge-patch+json")
    hold("its spec does not change", change.status == 422 and "does not change" in str(change), change)
    hold("a Preload of nothing is refused", preloads.make("nothing", prefixes=[]).status == 422)

    preloads.make("wrong", secret="wrong")
    preloads.make("stranger", secret="other-key")
    preloads.make("missing", secret="missing")
    preloads.make("hidden", secret="database")
    preloads.make("elsewhere", namespace="other")
    preloads.make("foreign", prefixes=["s3://no-such-bucket/"])
    preloads.await_condition("wrong", "Accepted", "False", "KeyRefused")
    preloads.await_condition("stranger", "Accepted", "False", "KeyRefused")
    preloads.await_condition("missing", "Accepted", "False", "SecretMissing")
    preloads.await_condition("hidden", "Accepted", "False", "SecretForbidden")
    until("another namespace's is refused", lambda: "SecretForbidden" in str(lab.api.ask("GET", "/apis/verbs3.io/v1alpha1/namespaces/other/preloads/elsewhere")))
    hold("a wrong key shows no secret", "x" * 40 not in str(preloads.get("wrong")) and key["secret_key"] not in str(preloads.get("wrong")))
    secret = lab.api.ask("PATCH", "/api/v1/namespaces/train/secrets/wrong", {"stringData": {"AWS_SECRET_ACCESS_KEY": key["secret_key"]}}, kind="application/merge-patch+json")
    hold("the key is put right", secret.status == 200)
    until("wrong is done", lambda: preloads.state("wrong") == "Done")
    until("foreign is told why not", lambda: preloads.condition("foreign", "Accepted")[0] == "False" or preloads.state("foreign") in ("Failed", "Incomplete"))

    many = [f"many-{index}" for index in range(45)]
    hold("more are made than are listed at once", all(preloads.make(name, secret="missing").status == 201 for name in many))
    until("all of them are worked at", lambda: all(preloads.condition(name, "Accepted")[1] == "SecretMissing" for name in many))
    for name in many:
        lab.api.ask("DELETE", f"{PRELOADS}/{name}")
    until("all of them go", lambda: all(preloads.get(name).status == 404 for name in many))
    HELD.append("pages of resources are worked through")

    client.put_object(Bucket="demo", Key="slow/a", Body=b"a" * 100_000_000)
    # coordinator.preload.guest_bandwidth_min: it takes more than a minute and a half.
    slow = {"prefixes": ["s3://demo/slow/"], "bandwidthBytesPerSecond": 1 << 20}
    uid = preloads.make("slow", **slow)["metadata"]["uid"]
    until("slow runs", lambda: preloads.state("slow") == "Running")
    preloads.delete("slow")
    until("slow is gone", lambda: preloads.get("slow").status == 404)
    until("its job is stopped", lambda: preloads.job(uid)["state"] == "stopped")
    preloads.delete("missing")
    until("what never had a job goes", lambda: preloads.get("missing").status == 404)

    preloads.make("lost", **slow)
    until("lost runs", lambda: preloads.state("lost") in ("Queued", "Running"))
    lab.processes.stop("dev")
    preloads.await_condition("lost", "Current", "False", "EndpointAway")
    hold("what was known of the job stays", preloads.state("lost") in ("Queued", "Running"))
    preloads.delete("lost")
    until("it goes although nobody could be told", lambda: preloads.get("lost").status == 404, 20)
    events = lab.api.ask("GET", "/apis/events.k8s.io/v1/namespaces/train/events")["items"]
    not_stopped = [one["regarding"]["name"] for one in events if one["reason"] == "NotStopped"]
    hold("an event says that its job was not stopped", "lost" in not_stopped)
    hold("of what never had a job, no event says so", "missing" not in not_stopped)

    before = lab.admin(admin, "/metrics")
    time.sleep(3)
    asked = [int(line.split()[1]) for text in (before, lab.admin(admin, "/metrics")) for line in text.splitlines()
             if line.startswith('verbs3_controller_work_total{work="refused"}')]
    # Two that wait for the endpoint, each every two seconds at most.
    hold("what fails is not tried in a hot loop", asked[1] - asked[0] <= 8, asked)
    hold("the controller ends by SIGTERM", lab.processes.stop("controller") == 0)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("verbs3", "etcd", "helm", "apiserver", "dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--definitions", required=True, nargs="+", type=Path)
    parser.add_argument("--cert-manager")
    said = parser.parse_args()
    folder = Path(said.dir)
    shutil.rmtree(folder / "lab", ignore_errors=True)
    (folder / "lab").mkdir()
    lab = Lab(said, folder / "lab")
    try:
        try_webhook(lab)
        try_controller(lab)
        # By now the chart's own definition is there.
        define(lab.api, said.definitions)
        manager = CertManager(lab.api, lab.processes, lab.folder, said.cert_manager) if said.cert_manager else None
        unproven = [f"{kind} of deploy/ against its definition, which no registry of packages gave" for kind in hold_resources(lab.api, said.helm)]
        if manager:
            try_roles(manager, said.verbs3, said.helm)
            try_injection(manager, lab)
            hold("cert-manager ends by SIGTERM", lab.processes.stop("cert-manager") == 0)
        else:
            unproven.append("the chart's certificates by a cert-manager: none is built here; tests/testbed/cert-manager.sh builds one in minutes")
    except BaseException:
        for path in sorted((folder / "lab").glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-15:]
            print(f"--- {path.name}", *tail, sep="\n", file=sys.stderr)
        raise
    finally:
        lab.processes.stop_all()
    (folder / "not-proven").write_text("".join(f"{one}\n" for one in unproven))
    for one in unproven:
        print(f"NOT PROVEN: {one}")
    print(f"kubernetes: {len(HELD)} things held at a real API server")
    return 0


if __name__ == "__main__":
    sys.exit(main())
