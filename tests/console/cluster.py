"""Owns the processes of one cluster on loopback, its users and its traffic. Ends each process by its pid. Knows no browser."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import botocore.config
import botocore.session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))

from free_ports import free_port  # noqa: E402

SECRET = "a secret of thirty-two characters or more"
OPERATOR, VIEWER, PASSWORD = "olga", "vera", "correct horse battery"
WORKERS = ("gpu-01", "gpu-02")
START_SECONDS_MAX = 180
ADMIN, MEMORY = 'admin_listen = "127.0.0.1:0"\n', 'memory = { capacity = "64MiB" }\n'
# Markup in a key, as a stranger may choose it.
HOSTILE_KEY = "set/\"><script>alert(1)</script><img src=x onerror=alert(2)>.bin"
OBJECTS, OBJECT_BYTES = 24, 512 << 10


class Process:
    """One process of the product, with its log."""

    def __init__(self, binary: str, folder: Path, name: str, words: list[str], environment: dict[str, str]):
        self.name = name
        self.log, ready = folder / f"{name}.log", folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                [binary, *words, "--ready-file", str(ready)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | environment,
            )
        end = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            assert self.child.poll() is None, f"{name} ended:\n{self.log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"{name} does not serve"
            time.sleep(0.02)

    def signal(self, number: signal.Signals):
        self.child.send_signal(number)

    def end(self):
        if self.child.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Cluster:
    """A store, a coordinator with a console, two workers and a gateway."""

    workers = WORKERS
    # More lines of these sections.
    more = {"cluster": "", "coordinator": ""}

    def __init__(self, folder: Path):
        self.binary, self.folder = os.environ["CONSOLE_BINARY"], folder
        self.processes: list[Process] = []
        ports = {name: free_port() for name in ("store", "coordinator", "gateway")}
        self.url = f"http://127.0.0.1:{ports['coordinator']}"
        self.gateway_port = ports["gateway"]
        data = folder / "data"
        self.store_words = ["dev", "--no-demo", "--listen", f"127.0.0.1:{ports['store']}", "--dir", str(data)]
        self.store = self.start("store", self.store_words)
        key = tomllib.loads((data / "identities.toml").read_text())["identity"][0]
        self.access, self.secret = key["access_key"], key["secret_key"]
        self.shared = (
            f'[cluster]\nname = "training"\nsecret = "{SECRET}"\ncoordinators = ["{self.url}"]\n{self.more["cluster"]}'
            f'[[ufs]]\nname = "store"\nendpoint = "http://127.0.0.1:{ports["store"]}"\n'
            f'credentials = {{ kind = "static", access_key_id = "{self.access}", secret_access_key = "{self.secret}" }}\n'
            '[[mount]]\nname = "*"\nufs = "store"\n'
        )
        users = folder / "users.toml"
        users.write_text(self.make_user(OPERATOR, "operator") + self.make_user(VIEWER, "viewer"))
        self.coordinator = self.start_role(
            "coordinator",
            f'[coordinator]\nlisten = "127.0.0.1:{ports["coordinator"]}"\nstore = {{ path = "{folder}/coordinator" }}\n{ADMIN}'
            f'preload = {{ failures = "{folder}/failures", memory = "16MiB" }}\n'
            f'console = {{ users = "{users}", report_every = "1s" }}\n{self.more["coordinator"]}',
        )
        for name in self.workers:
            self.start_worker(name)
        self.gateway = self.start_role(
            "gateway",
            f'[gateway]\nlisten = "127.0.0.1:{ports["gateway"]}"\n{ADMIN}{MEMORY}identities = "{data}/identities.toml"\n',
        )
        self.client = self.make_client(ports["gateway"])
        self.until_ready(folder)

    def start(self, name: str, words: list[str], environment: dict[str, str] | None = None) -> Process:
        process = Process(self.binary, self.folder, name, words, environment or {})
        self.processes.append(process)
        return process

    def start_role(self, name: str, section: str, environment: dict[str, str] | None = None) -> Process:
        """`section` begins with its role."""
        file = self.folder / f"{name}.toml"
        file.write_text(self.shared + section)
        return self.start(name, [section[1 : section.index("]")], "--config", str(file)], environment)

    def start_worker(self, name: str, more: str = "", environment: dict[str, str] | None = None) -> Process:
        section = f'[worker]\nid = "{name}"\nlisten = "127.0.0.1:{free_port()}"\nzone = "rack-{name[-1]}"\n'
        return self.start_role(name, f"{section}{ADMIN}{MEMORY}{more}", environment)

    def ask(self, *words: str):
        """Runs a command that asks the coordinators."""
        environment = os.environ | {"VERBS3_CLUSTER__SECRET": SECRET, "VERBS3_CLUSTER__NAME": "training"}
        words = (self.binary, *words, "--coordinator", self.url)
        subprocess.run(words, check=True, env=environment, capture_output=True)

    def make_user(self, name: str, role: str) -> str:
        words = [self.binary, "console-user", name, "--role", role]
        return subprocess.run(words, input=PASSWORD, text=True, capture_output=True, check=True).stdout

    def make_client(self, port: int, retries: int = 3):
        config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"max_attempts": retries})
        return botocore.session.get_session().create_client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=self.access,
            aws_secret_access_key=self.secret,
            config=config,
        )

    def until_ready(self, folder: Path):
        """Until all workers are in the map, and the gateway has one."""

        def asks(name: str, path: str) -> str:
            admin = json.loads((folder / f"{name}.ready").read_text())["admin"]
            return urllib.request.urlopen(f"http://{admin}{path}", timeout=5).read().decode()

        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                asks("gateway", "/readyz")
                if f"\nverbs3_coordinator_members {len(self.workers)}\n" in asks("coordinator", "/metrics"):
                    return
            except OSError:
                pass
            assert time.monotonic() < end, "the gateway does not become ready"
            time.sleep(0.1)

    def start_tls_coordinator(self) -> str:
        """One that demands TLS, with users of its own and no workers."""
        folder, port = self.folder / "tls", free_port()
        folder.mkdir()
        (folder / "names").write_text(
            "subjectAltName=URI:verbs3://training/coordinator/c0,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        for words in (
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=CA -keyout ca.key -out ca.crt",
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=c0 -keyout c0.key -out c0.csr",
            "x509 -req -in c0.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out c0.crt",
        ):
            subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
        file = folder / "coordinator.toml"
        file.write_text(
            f'[cluster]\nname = "training"\nsecret = "{SECRET}"\ncoordinators = ["https://localhost:{port}"]\n'
            f'[cluster.tls]\ncertificate = "{folder}/c0.crt"\nkey = "{folder}/c0.key"\nca_file = "{folder}/ca.crt"\n'
            f'[coordinator]\nlisten = "127.0.0.1:{port}"\nadmin_listen = "127.0.0.1:0"\n'
            f'store = {{ path = "{folder}/store" }}\nconsole = {{ users = "{self.folder}/users.toml" }}\n'
        )
        self.start("tls-coordinator", ["coordinator", "--config", str(file)])
        return f"https://localhost:{port}"

    def send_traffic(self):
        """Writes a set of objects, and reads it twice."""
        body = random.randbytes(OBJECT_BYTES)
        keys = [f"set/{number:03}.bin" for number in range(OBJECTS)] + [HOSTILE_KEY]
        for key in keys:
            self.client.put_object(Bucket="demo", Key=key, Body=body)
        for _ in range(2):
            for key in keys:
                self.read(key)
        # Nobody reads these: jobs load them.
        for number in range(4):
            self.client.put_object(Bucket="demo", Key=f"cold/{number}.bin", Body=body)

    def read(self, key: str):
        assert len(self.client.get_object(Bucket="demo", Key=key)["Body"].read()) == OBJECT_BYTES

    def begin_slow_job(self, name: str):
        """One that lasts until it is stopped: it may take next to nothing from the store."""
        self.ask("preload", "--id", name, "--bandwidth", "1KiB", "s3://demo/cold/")

    def end(self):
        for process in reversed(self.processes):
            process.end()
