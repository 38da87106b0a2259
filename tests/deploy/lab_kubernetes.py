"""The webhook and the controller of the lab, at a real API server. Nobody runs pods there: they are created."""

import base64
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import yaml

from lab import ROOT, STORE, Lab, get, wait

sys.path.insert(0, str(ROOT / "tests/kubernetes"))
from api_server import ApiServer, Processes  # noqa: E402 # where it is

WEBHOOK, SPACE = 9600, "train"
PRELOADS = f"/apis/verbs3.io/v1alpha1/namespaces/{SPACE}/preloads"


class Kubernetes:
    def __init__(self, lab: Lab, etcd: Path, program: Path) -> None:
        self.lab, self.folder = lab, lab.folder / "kubernetes"
        self.folder.mkdir()
        # Without a default route an API server does not start.
        subprocess.run(["ip", "route", "add", "default", "dev", "rail0"], check=True)
        self.processes = Processes(self.folder)
        self.api = ApiServer(self.processes, self.folder, str(etcd), str(program))
        for space in ("verbs3", SPACE):
            self.api.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": {"verbs3.io/inject": "enabled"}}})
        self.start_controller()
        self.start_webhook()
        lab.admin |= {"verbs3-webhook": [9601], "verbs3-controller": [9701]}

    def start_controller(self) -> None:
        """It may do everything here: what it may in a cluster is of tests/kubernetes."""
        self.api.make(yaml.safe_load((ROOT / "deploy/helm/verbs3/files/preloads.yaml").read_text(encoding="utf-8")))
        self.api.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "controller", "namespace": "verbs3"}})
        self.api.make({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "controller"},
                       "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                       "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": "verbs3"}]})
        keys = {"AWS_ACCESS_KEY_ID": self.lab.keys["access_key"], "AWS_SECRET_ACCESS_KEY": self.lab.keys["secret_key"]}
        self.api.make({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": SPACE}, "stringData": keys})
        (self.folder / "token").write_text(self.api.token("verbs3", "controller"))
        path = self.folder / "controller.toml"
        # The store of the lab is a whole endpoint, without TLS. One resource has its turn in a round.
        path.write_text(f"""\
[controller]
endpoint = "http://127.0.0.1:{STORE}"
api_server = "{self.api.url}"
api_ca_file = "{self.api.pki}/ca.crt"
api_token_file = "{self.folder}/token"
look_every = "1s"
retry_max = "2s"
resources_max = 1
""")
        wait("the resource's definition", lambda: self.api.ask("GET", PRELOADS).status == 200)
        self.lab.spawn("controller", [self.lab.verbs3, "controller", "--config", path])
        wait("the controller", lambda: get("http://127.0.0.1:9701/readyz"))

    def start_webhook(self) -> None:
        for name in ("members.crt", "members.key"):
            shutil.copy(self.lab.folder / "pki" / name, self.folder / name)
        path = self.folder / "webhook.toml"
        path.write_text(f'[webhook.tls]\ncertificate = "{self.folder}/members.crt"\nkey = "{self.folder}/members.key"\n')
        self.lab.spawn("webhook", [self.lab.verbs3, "webhook", "--config", path])
        wait("the webhook", lambda: get("http://127.0.0.1:9601/readyz"))
        ca = base64.b64encode((self.lab.folder / "pki/ca.crt").read_bytes()).decode()
        self.api.make({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "verbs3"},
                       "webhooks": [{"name": "inject.verbs3.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                                     "clientConfig": {"url": f"https://127.0.0.1:{WEBHOOK}/inject", "caBundle": ca},
                                     "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]})

    def use(self) -> None:
        """Creates pods until one is patched, and a Preload, which ends."""
        made = []

        def is_patched() -> bool:
            made.append(None)
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{len(made)}"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
            return "AWS_ENDPOINT_URL_S3" in str(self.api.make(pod, SPACE))

        wait("a pod that is patched", is_patched)
        self.preload("one", "keys")
        wait("the end of a Preload", lambda: self.api.ask("GET", f"{PRELOADS}/one").get("status", {}).get("state") == "Done")

    def preload(self, name: str, secret: str) -> None:
        self.api.make({"apiVersion": "verbs3.io/v1alpha1", "kind": "Preload", "metadata": {"name": name, "namespace": SPACE},
                       "spec": {"prefixes": ["s3://demo/lab/"], "secretName": secret}})

    def ask_nonsense(self) -> None:
        """A review that is none."""
        trust = ssl.create_default_context(cafile=self.lab.folder / "pki/ca.crt")
        request = urllib.request.Request(f"https://127.0.0.1:{WEBHOOK}/inject", b"no review", {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, context=trust, timeout=10).close()
        except urllib.error.HTTPError:
            pass

    def end(self) -> None:
        self.processes.stop_all()
