"""An API server with its etcd, on loopback, for tests: certificates, start, questions as an administrator or with a token."""

import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))

from free_ports import free_port  # noqa: E402


# What was held, in words.
HELD = []


def hold(what: str, is_so, seen=None) -> None:
    if not is_so:
        raise SystemExit(f"ERROR: {what}" + (f": {seen}" if seen is not None else ""))
    HELD.append(what)


def openssl(*words: str, folder: Path) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"openssl {' '.join(words)}: {done.stderr}")


def certificate(folder: Path, name: str, subject: str, extensions: str) -> None:
    """A certificate of the folder's authority, which is made with the first one."""
    if not (folder / "ca.crt").exists():
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt", folder=folder)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr", folder=folder)
    (folder / f"{name}.ext").write_text(extensions)
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", f"{name}.ext", "-out", f"{name}.crt", folder=folder)


def until(what: str, holds, seconds: float = 60):
    """Waits for a condition; what it gives."""
    end = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise SystemExit(f"ERROR: waited {seconds} s in vain: {what}")
        time.sleep(0.1)


class Processes:
    """What a test has started, ended by their ids."""

    def __init__(self, folder: Path):
        self.folder, self.running = folder, {}

    def start(self, name: str, *words) -> subprocess.Popen:
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, cwd=self.folder)
        return self.running[name]

    def stop(self, name: str) -> int:
        one = self.running.pop(name)
        one.terminate()
        try:
            return one.wait(40)
        except subprocess.TimeoutExpired:
            one.kill()
            raise SystemExit(f"ERROR: {name} did not end by SIGTERM") from None

    def stop_all(self) -> None:
        for one in reversed(list(self.running.values())):
            one.kill()
            one.wait()


class Answer(dict):
    """A document, with the status and the warnings that came with it."""

    status = 0
    warnings: list = []


class ApiServer:
    def __init__(self, processes: Processes, folder: Path, etcd: str, program: str):
        self.pki = folder / "pki"
        self.pki.mkdir()
        certificate(self.pki, "server", "/CN=kube-apiserver", "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
        certificate(self.pki, "admin", "/O=system:masters/CN=admin", "extendedKeyUsage=clientAuth\n")
        openssl("genrsa", "-out", "sa.key", "2048", folder=self.pki)
        store, peers, port = free_port(), free_port(), free_port()
        processes.start("etcd", etcd, "--data-dir", folder / "etcd", "--listen-client-urls", f"http://127.0.0.1:{store}",
                        "--advertise-client-urls", f"http://127.0.0.1:{store}", "--listen-peer-urls", f"http://127.0.0.1:{peers}",
                        "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}", "--initial-cluster", f"default=http://127.0.0.1:{peers}", "--unsafe-no-fsync")
        pki = self.pki
        processes.start(
            "apiserver", program, f"--etcd-servers=http://127.0.0.1:{store}", "--bind-address=127.0.0.1", f"--secure-port={port}",
            f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={pki}/sa.key",
            f"--service-account-signing-key-file={pki}/sa.key", "--authorization-mode=RBAC", "--endpoint-reconciler-type=none",
            # Nobody makes accounts for pods here, and none runs.
            "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.96.0.0/16")
        self.url = f"https://127.0.0.1:{port}"
        self.tls = ssl.create_default_context(cafile=pki / "ca.crt")
        self.tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self.stranger = ssl.create_default_context(cafile=pki / "ca.crt")
        until("the API server is ready", lambda: self.ask("GET", "/readyz").status == 200, 240)

    def ask(self, method: str, path: str, body=None, token: str = "", kind: str = "application/json") -> Answer:
        """As the administrator, or with a token. A text is sent as it is, anything else as JSON."""
        text = body if isinstance(body, str) else json.dumps(body)
        request = urllib.request.Request(self.url + path, method=method, data=None if body is None else text.encode())
        request.add_header("Content-Type", kind)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=self.stranger if token else self.tls, timeout=30) as told:
                status, text, headers = told.status, told.read(), told.headers
        except urllib.error.HTTPError as told:
            status, text, headers = told.code, told.read(), told.headers
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return Answer()
        try:
            answer = Answer(json.loads(text))
        except ValueError:
            answer = Answer(text=text.decode(errors="replace"))
        answer.status, answer.warnings = status, headers.get_all("Warning") or []
        return answer

    def make(self, document: dict, where: str = "") -> Answer:
        """Creates a document in its place. `where`: its namespace, if it does not say."""
        group = document["apiVersion"]
        root = f"/apis/{group}" if "/" in group else f"/api/{group}"
        plural = document["kind"].lower() + "s"
        namespace = document["metadata"].get("namespace") or where
        place = f"/namespaces/{namespace}" if namespace else ""
        return self.ask("POST", f"{root}{place}/{plural}", document)

    def token(self, namespace: str, account: str) -> str:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)["status"]["token"]
