"""A real cert-manager (tests/testbed/cert-manager.sh) beside an API server: what of deploy/ it and its webhook take, whether the Secrets
that it makes are what processes need, and whether API servers trust the webhook by what it tells them. It is an administrator
there: nothing is said of its own roles."""

import base64
import json
import ssl
import subprocess
import sys
import time
from pathlib import Path

from api_server import ApiServer, Processes, certificate, hold, until
from free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/deploy"))
import brought_files  # noqa: E402 # where it is

SPACE = "/apis/cert-manager.io/v1/namespaces/default/"
# A usage of a Certificate: as openssl says it, and as it asks for it.
USAGES = {"server auth": ("TLS Web Server Authentication", "sslserver"), "client auth": ("TLS Web Client Authentication", "sslclient")}


def openssl(*words) -> tuple[int, str]:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def unlike(spec: dict, folder: Path) -> list[str]:
    """Where a Secret's files are not what the spec of its Certificate says."""
    made, wrong = folder / "tls.crt", []
    lines = openssl("x509", "-in", made, "-noout", "-ext", "subjectAltName,extendedKeyUsage")[1].splitlines()
    said = {line.split(":")[0].strip(): set(lines[index + 1].strip().split(", ")) for index, line in enumerate(lines) if line.startswith("X509v3")}
    names = {f"URI:{one}" for one in spec.get("uris", [])} | {f"DNS:{one}" for one in spec.get("dnsNames", [])}
    names |= {f"IP Address:{one}" for one in spec.get("ipAddresses", [])}
    if said.get("X509v3 Subject Alternative Name") != names:
        wrong.append(f"it has the names {said}, and not {names}")
    if said.get("X509v3 Extended Key Usage") != {USAGES[one][0] for one in spec["usages"]}:
        wrong.append(f"it has the usages {said}, and not {spec['usages']}")
    for usage, (_, purpose) in USAGES.items():
        is_fit = openssl("verify", "-CAfile", folder / "ca.crt", "-purpose", purpose, made)[0] == 0
        if is_fit != (usage in spec["usages"]):
            wrong.append(f"by ca.crt it is {'' if is_fit else 'not '}fit for {usage}")
    keys = [openssl("x509", "-in", made, "-noout", "-pubkey")[1], openssl("pkey", "-in", folder / "tls.key", "-pubout")[1]]
    if keys[0] != keys[1] or "PUBLIC KEY" not in keys[0]:
        wrong.append("tls.key is not its key")
    return wrong


class CertManager:
    """Runs beside an API server that has its definitions, and makes Secrets of the namespace `default`."""

    def __init__(self, api: ApiServer, processes: Processes, folder: Path, program: str):
        self.api, self.folder, self.made = api, folder / "cert-manager", 0
        self.folder.mkdir()
        pki, port = api.pki, free_port()
        certificate(pki, "cert-manager", "/CN=cert-manager", "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        access = {"apiVersion": "v1", "kind": "Config", "current-context": "one",
                  "clusters": [{"name": "one", "cluster": {"server": api.url, "certificate-authority": f"{pki}/ca.crt"}}],
                  "users": [{"name": "one", "user": {"client-certificate": f"{pki}/admin.crt", "client-key": f"{pki}/admin.key"}}],
                  "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}]}
        (self.folder / "access").write_text(json.dumps(access))
        processes.start("cert-manager", program, self.folder / "access", port, pki / "cert-manager.crt", pki / "cert-manager.key")
        authority = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
        # As upstream's chart has them.
        for kind, path, operations, resources in (("ValidatingWebhookConfiguration", "validate", ["CREATE", "UPDATE"], ["*/*"]),
                                                  ("MutatingWebhookConfiguration", "mutate", ["CREATE"], ["certificaterequests"])):
            one = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "cert-manager"}, "webhooks": [{
                "name": "webhook.cert-manager.io", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "sideEffects": "None",
                "rules": [{"apiGroups": ["cert-manager.io"], "apiVersions": ["v1"], "operations": operations, "resources": resources}],
                "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": authority}}]}
            hold(f"the {kind} of cert-manager is taken", api.make(one).status == 201)
        until("cert-manager's webhook refuses what the schema does not: a Certificate without a name",
              lambda: "denied the request: spec: Invalid value" in str(self.create("Certificate", "bare", self.issued_by("nodes", "bare"))))
        # Until the API server knew of the webhook it was taken.
        self.api.ask("DELETE", f"{SPACE}certificates/bare")

    def create(self, kind: str, name: str, spec: dict):
        return self.api.make({"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}, "default")

    @staticmethod
    def issued_by(issuer: str, secret: str) -> dict:
        return {"secretName": secret, "issuerRef": {"name": issuer, "kind": "Issuer"}}

    def make_authorities(self, *names: str) -> None:
        """Issuers that a person brings along, each with a CA of its own."""
        hold("a self-signed Issuer is made", self.create("Issuer", "self-signed", {"selfSigned": {}}).status == 201)
        for name in names:
            spec = {"isCA": True, "commonName": name, "privateKey": {"algorithm": "ECDSA"}} | self.issued_by("self-signed", f"{name}-ca")
            hold(f"the CA of {name} is asked for", self.create("Certificate", f"{name}-ca", spec).status == 201)
            self.await_ready("certificates", f"{name}-ca")
            hold(f"the Issuer {name} is made", self.create("Issuer", name, {"ca": {"secretName": f"{name}-ca"}}).status == 201)
            self.await_ready("issuers", name)

    def await_ready(self, plural: str, name: str) -> None:
        def is_ready() -> bool:
            found = self.api.ask("GET", f"{SPACE}{plural}/{name}")
            return any(one["type"] == "Ready" and one["status"] == "True" for one in found.get("status", {}).get("conditions", []))
        until(f"{plural} {name} is ready", is_ready)

    def files(self, name: str) -> dict[str, str]:
        """What a Secret holds."""
        found = self.api.ask("GET", f"/api/v1/namespaces/default/secrets/{name}")
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def secret(self, spec: dict) -> dict[str, str]:
        """As brought_files.Authority: the Secret of a Certificate with this spec, which is held against it."""
        self.made += 1
        name = f"made-{self.made}"
        made = self.create("Certificate", name, self.issued_by("nodes", name) | spec)
        hold(f"the Certificate {name} is taken", made.status == 201, made)
        self.await_ready("certificates", name)
        return self.held_against(spec, made["spec"]["secretName"])

    def held_against(self, spec: dict, name: str) -> dict[str, str]:
        files = self.files(name)
        hold(f"Secret {name} has what pods mount", set(files) == {"ca.crt", "tls.crt", "tls.key"}, set(files))
        wrong = unlike(spec, self.laid_out(name, files))
        hold(f"Secret {name} is what its Certificate says", not wrong, wrong)
        return files

    def laid_out(self, name: str, files: dict[str, str]) -> Path:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        for key, text in files.items():
            (place / key).write_text(text)
        return place

    def renew(self, name: str) -> None:
        """As `cmctl renew` does."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found = self.api.ask("GET", f"{SPACE}certificates/{name}")
        found["status"]["conditions"].append({"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "a test", "lastTransitionTime": now})
        hold(f"{name} is to be issued anew", self.api.ask("PUT", f"{SPACE}certificates/{name}/status", found).status == 200)


def try_roles(manager: CertManager, verbs3: str, helm: str) -> None:
    """Gateway, coordinator and worker, by the chart's Certificates and those of deploy/README.md."""
    manager.make_authorities("nodes", "clients")
    place = manager.folder / "roles"
    place.mkdir()
    wrong = brought_files.certified(Path(verbs3), Path(helm), place, manager)
    hold("each role takes its Secrets of cert-manager, and not another role's", not wrong, wrong)
    hold("three Certificates are of the chart, two a person's", manager.made == 5, manager.made)


def try_injection(manager: CertManager, lab) -> None:
    """The webhook by the chart's own Issuers and Certificates; what API servers are told of its CA; a certificate in its running out."""
    documents = brought_files.chart(Path(lab.said.helm), "--set", "webhook.enabled=true", "--set", "webhook.tls.certManager=true",
                                    "--set", "webhook.settings.endpoint=https://s3.example:9000")
    ours = [one for one in documents if one["metadata"]["name"].startswith("verbs3-webhook") and one["apiVersion"] == "cert-manager.io/v1"]
    hold("the chart has two Issuers and two Certificates for it", sorted(one["kind"] for one in ours) == ["Certificate"] * 2 + ["Issuer"] * 2)
    for one in ours:
        hold(f"{one['kind']} {one['metadata']['name']} is made", lab.api.make(one, "default").status == 201)
    for one in ours:
        manager.await_ready(one["kind"].lower() + "s", one["metadata"]["name"])
    leaf = next(one["spec"] for one in ours if one["metadata"]["name"] == "verbs3-webhook" and one["kind"] == "Certificate")
    files = manager.held_against(leaf, leaf["secretName"])
    place = manager.folder / leaf["secretName"]
    for change in ({"dnsNames": ["another"]}, {"usages": list(USAGES)}, {"usages": ["client auth"]}):
        hold(f"a Secret that is not what its Certificate says is noticed: {change}", unlike(leaf | change, place))

    text = next(one for one in documents if one["metadata"]["name"] == "verbs3-webhook" and one["kind"] == "ConfigMap")["data"]["webhook.toml"]
    port, admin = free_port(), free_port()
    path = lab.folder / "certified-webhook.toml"
    path.write_text(text.replace("/etc/verbs3-webhook/tls.", f"{place}/tls.").replace("0.0.0.0:9600", f"127.0.0.1:{port}").replace("0.0.0.0:9601", f"127.0.0.1:{admin}"))
    lab.processes.start("certified-webhook", lab.said.verbs3, "webhook", "--config", path)
    until("the webhook is ready", lambda: "ready" in lab.admin(admin, "/readyz"))
    # There is no network of Services: this one leads to loopback. The name in the certificate stays the Service's.
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "verbs3-webhook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    hold("its Service is made", lab.api.make(service, "default").status == 201)
    config = next(one for one in documents if one["kind"] == "MutatingWebhookConfiguration")
    for one in config["webhooks"]:
        one["clientConfig"]["service"]["port"] = port
    hold("its configuration is taken, without a CA", lab.api.make(config).status == 201 and "caBundle" not in str(config))
    where = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{config['metadata']['name']}"
    authority = base64.b64encode(files["ca.crt"].encode()).decode()
    until("cert-manager tells API servers the CA", lambda: [one["clientConfig"].get("caBundle") for one in lab.api.ask("GET", where)["webhooks"]] == [authority] * 2)
    lab.namespace("certified", {"verbs3.io/inject": "enabled"})

    def is_patched() -> bool:
        made = lab.api.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "one-"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}, "certified")
        return "AWS_ENDPOINT_URL_S3" in str(made["spec"])
    until("pods are patched by a webhook whose CA cert-manager told", is_patched)

    manager.renew("verbs3-webhook")
    until("the Certificate is issued anew", lambda: manager.files(leaf["secretName"])["tls.crt"] != files["tls.crt"])
    manager.await_ready("certificates", "verbs3-webhook")
    renewed = manager.files(leaf["secretName"])
    hold("with a key of its own, by the same CA", renewed["tls.key"] != files["tls.key"] and renewed["ca.crt"] == files["ca.crt"])
    manager.laid_out(leaf["secretName"], renewed)
    until("the webhook shows the new certificate", lambda: ssl.get_server_certificate(("127.0.0.1", port)).strip() == renewed["tls.crt"].strip())
    hold("and pods are patched", is_patched())
    hold("the webhook ends by SIGTERM", lab.processes.stop("certified-webhook") == 0)
    hold("its configuration goes", lab.api.ask("DELETE", where).status == 200)
