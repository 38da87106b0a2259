"""Owns the processes that are attacked: a store, two coordinators, a worker, and four gateways, on loopback.

The bounds are small and the deadlines short, so that an attack that is not bounded shows within seconds. Every process is
ended by its pid. Knows no attack.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))

from free_ports import free_port  # noqa: E402

SECRET = "a secret of the attacked cluster"
CLUSTER = "attacked"
START_SECONDS_MAX = 180
MIB = 1 << 20

# Deadlines of the gateways, in seconds. A case that waits for one allows itself many times as much.
PROOF_SECONDS = 3
# What a gateway may hold: the parts of its bound on memory (see memory_bound).
LANDINGS, BODIES, FORMS, ANSWERS = 64 * MIB, 32 * MIB, 8 * MIB, 8 * MIB
HEADER, CONNECTIONS = 16 * 1024, 1500
# The program itself, its threads' stacks and what its allocator keeps.
SLACK = 96 * MIB


@dataclass(frozen=True)
class Key:
    access: str
    secret: str


OWNER = Key("AKOWNER", "owner-secret-key")
HONEST = Key("AKHONEST", "honest-secret-key")
# Identities of the rights' cases. Each has what its name says, and nothing else.
WRITER, ADMIN, NARROW = Key("AKWRITER", "writer-secret"), Key("AKADMIN", "admin-secret"), Key("AKNARROW", "narrow-secret")
# Administers one bucket, and may only write and delete in another.
HALF_ADMIN = Key("AKHALFADMIN", "half-admin-secret")
WARMER, OTHER_WARMER = Key("AKWARMER", "warmer-secret"), Key("AKOTHERWARMER", "other-warmer-secret")

# Name, key, mount, prefix and rights; then these three of more rules.
GRANTS = [
    ("owner", OWNER, "*", "", "read write list delete warm admin"),
    ("honest", HONEST, "*", "", "read write list delete"),
    ("writer", WRITER, "*", "mine/", "read write list delete"),
    ("admin", ADMIN, "asked", "", "read write list delete admin"),
    ("half admin", HALF_ADMIN, "asked", "", "read write list delete admin", "secret", "", "write delete"),
    ("narrow", NARROW, "data", "a/b/", "read write list delete"),
    ("warmer", WARMER, "data", "warm/", "read list warm"),
    ("other warmer", OTHER_WARMER, "data", "other/", "warm"),
]


def rule(mount: str, prefix: str, rights: str) -> str:
    within = f'prefix = "{prefix}", ' if prefix else ""
    return f'{{ mount = "{mount}", {within}rights = {json.dumps(rights.split())} }}'


def identity(name: str, key: Key, *rules: str) -> str:
    allow = ", ".join(rule(*rules[at : at + 3]) for at in range(0, len(rules), 3))
    return f"""
[[identity]]
name = "{name}"
access_key = "{key.access}"
secret_key = "{key.secret}"
allow = [{allow}]
"""


IDENTITIES = "".join(identity(*grant) for grant in GRANTS)


class Process:
    """One process of the product, with its log and its admin address."""

    def __init__(self, name: str, command: list[str], log: Path, port: int, admin: int):
        self.name, self.command, self.log, self.port, self.admin = name, command, log, port, admin
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS_MAX
        while not listens(self.port):
            assert self.is_alive(), f"{self.name} ended at its start:\n{self.log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"{self.name} does not listen on port {self.port}"
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        return self.child.pid

    def is_alive(self) -> bool:
        return self.child.poll() is None

    def memory(self, field: str = "VmRSS") -> int:
        """Bytes, as the kernel counts them."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"{self.name} is gone")

    def end(self):
        if self.is_alive():
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def memory_bound(at_rest: int) -> int:
    """What the configuration lets a gateway hold, over what it holds at rest."""
    return at_rest + LANDINGS + BODIES + FORMS + ANSWERS + HEADER * CONNECTIONS + SLACK


class Cluster:
    """All processes. `folder` takes configurations, logs and data."""

    def __init__(self, binary: str, folder: Path, asked_port: int):
        self.binary, self.folder = binary, folder
        self.processes: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "identities.toml").write_text(IDENTITIES)
        self.asked_port = asked_port
        self.store = self.start_store()
        ports = [free_port() for _ in range(7)]
        self.coordinator_port, other_coordinator, self.worker_port, gateway, tls, patient, shop = ports
        self.coordinator = self.start_coordinator("coordinator", self.coordinator_port)
        # Another cluster by its members, the same by name and secret: proofs for the one are no use at the other.
        self.other_coordinator = self.start_coordinator("other-coordinator", other_coordinator)
        self.worker = self.start_worker()
        self.gateway = self.start_gateway("gateway", gateway)
        self.tls = self.start_gateway("tls", tls, self.make_certificate())
        # As the defaults are: it waits much longer for clients that do not read than for its turn to read, and one address may
        # have all connections.
        self.patient = self.start_gateway(
            "patient", patient, read='[gateway.read]\nadmission_wait_max = "1s"', stall="60s", connections=200, per_address=200
        )
        # Over a folder, in one process.
        self.shop = self.start_folder_gateway(shop)
        self.await_worker()

    def launch(self, name: str, role: str, text: str, port: int, admin: int) -> Process:
        file = self.folder / f"{name}.toml"
        file.write_text(text)
        command = [self.binary, role, "--config", str(file)]
        process = Process(name, command, self.folder / f"{name}.log", port, admin)
        self.processes.append(process)
        return process

    def start_store(self) -> Process:
        port, admin = free_port(), free_port()
        return self.launch(
            "store",
            "dev",
            f"""
[dev]
dir = "{self.folder}/store"
demo = false
[gateway]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin}"
identities = "{self.folder}/identities.toml"
memory = {{ capacity = "64MiB" }}
[worker]
memory = {{ capacity = "64MiB" }}
""",
            port,
            admin,
        )

    def shared(self, coordinators: bool) -> str:
        listed = f'coordinators = ["http://127.0.0.1:{self.coordinator_port}"]' if coordinators else ""
        return f"""
[cluster]
name = "{CLUSTER}"
secret = "{SECRET}"
{listed}

[[ufs]]
name = "store"
endpoint = "http://127.0.0.1:{self.store.port}"
credentials = {{ kind = "static", access_key_id = "{OWNER.access}", secret_access_key = "{OWNER.secret}" }}

# Writes down what it is asked, and grants it.
[[ufs]]
name = "asked"
endpoint = "http://127.0.0.1:{self.asked_port}"
credentials = {{ kind = "static", access_key_id = "any", secret_access_key = "any" }}

[[mount]]
name = "data"
ufs = "store"

[[mount]]
name = "part"
ufs = "store"
bucket = "data"
prefix = "part/"

[[mount]]
name = "asked"
ufs = "asked"
cached = false

[[mount]]
name = "secret"
ufs = "asked"
cached = false

[process]
drain_for = "1s"
threads = 2
admin_connections_max = 32
admin_per_address_max = 12
admin_deadline = "3s"
"""

    def start_coordinator(self, name: str, port: int) -> Process:
        admin = free_port()
        token = self.folder / "token"
        token.write_text("a-token-of-notifications\n")
        return self.launch(
            name,
            "coordinator",
            self.shared(True)
            + f"""
[coordinator]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin}"
advertise = "http://127.0.0.1:{port}"
gather = "0ms"
unproven_connections_max = 64
unproven_per_address_max = 24
connections_max = 256
proof_deadline = "3s"
notification_token_file = "{token}"
store = {{ kind = "folder", path = "{self.folder}/{name}" }}
""",
            port,
            admin,
        )

    def start_worker(self) -> Process:
        admin = free_port()
        return self.launch(
            "worker",
            "worker",
            self.shared(True)
            + f"""
[worker]
id = "worker-0"
listen = "127.0.0.1:{self.worker_port}"
admin_listen = "127.0.0.1:{admin}"
memory = {{ capacity = "64MiB" }}
shm = {{ enabled = false }}
[tcp]
connect_deadline = "3s"
handshakes_max = 48
handshakes_per_address_max = 16
""",
            self.worker_port,
            admin,
        )

    def bounds(self, stall: str = "4s", connections: int = CONNECTIONS, per_address: int = 1200) -> str:
        return f"""
[gateway.limits]
connections_max = {connections}
connections_per_address_max = {per_address}
unproven_connections_max = 600
unproven_per_address_max = 300
unproven_requests_max = 64
header_max = "{HEADER}B"
bodies_max = "{BODIES}B"
xml_max = "4MiB"
form_max = "4MiB"
forms_max = "{FORMS}B"
http2_answers_max = "{ANSWERS}B"
[gateway.timeouts]
header = "5s"
proof = "{PROOF_SECONDS}s"
tls_handshake = "3s"
body_idle = "4s"
write_stall = "{stall}"
rate_window = "4s"
"""

    def start_gateway(self, name: str, port: int, tls: str = "", read: str = "", **bounds) -> Process:
        admin = free_port()
        return self.launch(
            name,
            "gateway",
            self.shared(True)
            + f"""
[gateway]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin}"
identities = "{self.folder}/identities.toml"
memory = {{ capacity = "{LANDINGS}B" }}
domains = ["s3.attacked.test"]
{tls}
{self.bounds(**bounds)}
{read}
""",
            port,
            admin,
        )

    def start_folder_gateway(self, port: int) -> Process:
        admin = free_port()
        return self.launch(
            "shop",
            "dev",
            f"""
[dev]
dir = "{self.folder}/shop"
demo = false
[[ufs]]
name = "folder"
kind = "local"
path = "{self.folder}/shop/files"
sync = false
[[mount]]
name = "data"
ufs = "folder"
[[mount]]
name = "part"
ufs = "folder"
bucket = "data"
prefix = "part/"
[process]
drain_for = "1s"
threads = 2
[gateway]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin}"
own_hosts = ["127.0.0.1:{port}"]
identities = "{self.folder}/identities.toml"
memory = {{ capacity = "{LANDINGS}B" }}
[worker]
memory = {{ capacity = "64MiB" }}
{self.bounds()}
""",
            port,
            admin,
        )

    def make_certificate(self) -> str:
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-keyout",
                key,
                "-out",
                certificate,
            ],
            check=True,
            capture_output=True,
        )
        return f'[gateway.tls]\ncertificate = "{certificate}"\nkey = "{key}"'

    def await_worker(self):
        """Until the worker is in the map that the gateways follow."""
        end = time.monotonic() + START_SECONDS_MAX
        while (
            metric(self.gateway.admin, "verbs3_client_map_workers", 0) + metric(self.coordinator.admin, "verbs3_coordinator_members", 0) < 1
        ):
            assert time.monotonic() < end, "the worker is not in the map"
            time.sleep(0.1)

    def end(self):
        for process in reversed(self.processes):
            process.end()


def fetch(port: int, path: str = "/metrics", timeout: float = 30) -> str:
    """What an admin address answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def metric(port: int, name: str, default: float | None = None) -> float:
    """One figure; NAME with its labels, as /metrics writes them."""
    for line in fetch(port).splitlines():
        if line.startswith(f"{name} "):
            return float(line.rsplit(" ", 1)[1])
    assert default is not None, f"no metric {name}"
    return default


def find_binary() -> str:
    root = Path(__file__).resolve().parents[2]
    default = Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / os.environ.get("VERBS3_PROFILE", "ci") / "verbs3"
    return os.environ.get("ATTACKS_BINARY", str(default))
