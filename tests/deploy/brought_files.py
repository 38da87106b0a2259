#!/usr/bin/env python3
"""Files that a person brings along, as the built binary takes them: deploy/identities.toml, the console's users, and certificates for
S3 clients and of the cluster's processes. Certificates are made as the chart asks cert-manager for them, by an authority of openssl,
and each role's pod is held against what it mounts. Starts no process but `verbs3 config check`.

    brought_files.py VERBS3 HELM DIR

Prints what is wrong and exits 1."""

import subprocess
import sys
from pathlib import Path

import yaml

from client import IDENTITIES
from manifests import Container, Objects, containers
from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/helm"))
import render  # noqa: E402 # where it is

NODE, CLUSTER = "gpu-01", "train"
SECRET = "a secret of the files' test, long enough"
VALUES = ["--set", f"settings.cluster.name={CLUSTER}", "--set", "console.enabled=true",
          "--set", "tls.gateway.enabled=true", "--set", "tls.gateway.certManager=true", "--set", "tls.gateway.issuer.name=clients",
          "--set", "tls.cluster.enabled=true", "--set", "tls.cluster.certManager=true", "--set", "tls.cluster.issuer.name=nodes"]
USAGES = {"server auth": "serverAuth", "client auth": "clientAuth"}
FIELDS = {"spec.nodeName": NODE, "status.hostIP": "10.0.0.1", "status.podIP": "10.0.0.1", "metadata.name": "verbs3-coordinator-0"}


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Authority:
    """What an issuer of cert-manager does with a Certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=authority",
                "-keyout", folder / "ca.key", "-out", folder / "ca.crt")

    def secret(self, spec: dict) -> dict[str, str]:
        """The keys of the Secret of a Certificate with this spec."""
        key, request, made, extensions = (self.folder / name for name in ("one.key", "one.csr", "one.crt", "one.ext"))
        names = [f"URI:{one}" for one in spec.get("uris", [])] + [f"DNS:{one}" for one in spec.get("dnsNames", [])]
        names += [f"IP:{one}" for one in spec.get("ipAddresses", [])]
        usages = ",".join(USAGES[one] for one in spec["usages"])
        extensions.write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage={usages}\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={spec.get('commonName', 'none')}",
                "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.folder / "ca.crt", "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-days", "30",
                "-extfile", extensions, "-out", made)
        return {"ca.crt": (self.folder / "ca.crt").read_text(), "tls.crt": made.read_text(), "tls.key": key.read_text()}


def config_check(verbs3: Path, file: Path, role: str, env: dict[str, str]) -> str:
    """What `config check` says, with no path of this machine; "": nothing is wrong."""
    command = [verbs3, "config", "check", file, "--role", role]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"} | env)
    said = (done.stdout + done.stderr).strip()
    return "" if (done.returncode, said) == (0, f"{file} is fine for {role}") else f"{done.returncode}: {said}"


def users(verbs3: Path) -> str:
    done = subprocess.run([verbs3, "console-user", "alice", "--role", "operator"], input="a password of many letters\n", capture_output=True, text=True, check=True)
    return done.stdout


def laid_out(container: Container, own: dict[str, str], folder: Path) -> Path:
    """What a container mounts, below FOLDER, and its verbs3.toml with paths there. OWN: the files of a worker's host."""
    config = folder / "verbs3.toml"
    for mount in container.mounts:
        place = folder / mount.path.lstrip("/")
        place.mkdir(parents=True)
        for name, content in (own if mount.host == "/etc/verbs3-cluster" else mount.files).items():
            text = content.replace('"/etc/verbs3-', f'"{folder}/etc/verbs3-') if name == "verbs3.toml" else content
            (config if name == "verbs3.toml" else place / name).write_text(text, encoding="utf-8")
    return config


def chart(helm: Path, *words: str) -> list[dict]:
    """The chart's documents by the values of this file, and WORDS."""
    return [one for one in yaml.safe_load_all(render.template(str(helm), *VALUES, *words)) if one]


def made_by(documents: list[dict], authority: Authority, verbs3: Path) -> Objects:
    """What the chart and cert-manager make, and the console's users."""
    made: Objects = {("configmap", one["metadata"]["name"]): one["data"] for one in documents if one["kind"] == "ConfigMap"}
    made |= {("secret", one["spec"]["secretName"]): authority.secret(one["spec"]) for one in documents if one["kind"] == "Certificate"}
    return made | {("secret", "verbs3-console"): {"console-users.toml": users(verbs3)}}


def worker_files(authority: Authority) -> dict[str, str]:
    """What a node's folder has, as deploy/README.md has it made."""
    return authority.secret({"uris": [f"verbs3://{CLUSTER}/worker/{NODE}"], "usages": list(USAGES)})


def certified(verbs3: Path, helm: Path, folder: Path, authority) -> list[str]:
    """Each role's pod with what the chart has made and mounts, and with the certificates of others. AUTHORITY: as Authority, which
    makes the Secret of a Certificate's spec."""
    documents = chart(helm)
    made = made_by(documents, authority, verbs3)
    client = authority.secret({"commonName": "verbs3-coordinator", "dnsNames": ["verbs3-coordinator"], "usages": ["client auth"]})
    made |= {("secret", "verbs3"): {"cluster-secret": SECRET, "identities.toml": IDENTITIES}, ("secret", "verbs3-etcd-client"): client,
             ("secret", "verbs3-store"): {"credentials": "[default]\naws_access_key_id = key\naws_secret_access_key = secret\n"}}
    worker = worker_files(authority)
    gateways, coordinators = ("secret", "verbs3-cluster-gateway"), ("secret", "verbs3-cluster-coordinator")
    other_way = made | {gateways: made[coordinators], coordinators: made[gateways]}
    wrong = []
    for what, objects, fields, is_fine in (("as it is", made, FIELDS, True), ("with another role's", other_way, FIELDS | {"spec.nodeName": "gpu-02"}, False)):
        found = [one for one in containers(Path("chart"), documents, objects, fields, 9000, ["verbs3"]) if not one.is_init]
        if {one.name for one in found} != {"worker", "gateway", "coordinator"}:
            wrong.append(f"not the containers of three roles: {[str(one) for one in found]}")
        for container in found:
            config = laid_out(container, worker, folder / what.replace(" ", "-") / container.name)
            said = config_check(verbs3, config, container.name, container.env)
            if is_fine != (said == "") or (not is_fine and "cluster.tls.certificate" not in said):
                wrong.append(f"{container}, {what}: {said or 'is taken'}")
    return wrong


def identities(verbs3: Path, folder: Path) -> list[str]:
    """The example, with the secrets that its head has its reader make, and without."""
    text, file = (ROOT / "deploy/identities.toml").read_text(encoding="utf-8"), folder / "gateway.toml"
    (folder / "identities.toml").write_text(text)
    file.write_text(f"""\
[cluster]
secret = "{SECRET}"
coordinators = ["http://127.0.0.1:9500"]
[[ufs]]
name = "store"
endpoint = "http://127.0.0.1:7480"
credentials = {{ kind = "anonymous" }}
[[mount]]
name = "*"
ufs = "store"
[gateway]
identities = "{folder}/identities.toml"
""")
    secrets = [line.split('"')[1] for line in text.splitlines() if line.startswith("secret_file")]
    said = config_check(verbs3, file, "gateway", {})
    wrong = [] if len(secrets) == text.count("[[identity]]\n") and all(one in said for one in secrets) else [f"identities.toml: is taken without its secrets: {said}"]
    for number, name in enumerate(secrets):
        (folder / name).write_text(f"{number}-is-a-secret-of-the-files-test\n")
    said = config_check(verbs3, file, "gateway", {})
    return wrong + ([f"identities.toml: {said}"] if said else [])


def main(verbs3: Path, helm: Path, folder: Path) -> list[str]:
    (folder / "identities").mkdir()
    wrong = certified(verbs3, helm, folder, Authority(folder / "authority")) + identities(verbs3, folder / "identities")
    print("brought_files: certificates of three roles and of others, the console's users, identities")
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 3)
