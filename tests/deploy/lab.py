"""A small cluster of real processes to collect metrics from: store, etcd, coordinator, two workers, gateway, where there is an API server
also webhook and controller, and a Prometheus that scrapes them every second. The RDMA device is a stand-in (tests/fake-verbs), whose queue
pairs reach nobody outside their process. Knows no alert and no panel, and breaks nothing (troubles.py)."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from brought_files import Authority, USAGES
from verdict import Broken

ROOT = Path(__file__).resolve().parents[2]
STORE, COLLECTOR, ETCD, ODD_STORE = 7480, 9090, 2379, 7490
ADMIN = {"verbs3-gateway": [9001], "verbs3-worker": [9401, 9411], "verbs3-coordinator": [9501]}
# The stand-in that has this address, which is also that of a network device of this host.
RAIL, DEVICE = "10.0.0.1", "fake_plain1"
WITHIN = 60
SECRET = "a secret of the metrics' test, long enough"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def wait(what: str, holds) -> None:
    began = time.monotonic()
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        if time.monotonic() - began > WITHIN:
            raise Broken(f"{what} does not come")
        time.sleep(0.1)


def show_port(folder: Path) -> Path:
    """A port of an RDMA device where a process looks for what the kernel says of them; its folder. Of a mount namespace of its own."""
    classes, kept = Path("/sys/class"), folder / "sys-class"
    kept.mkdir()
    subprocess.run(["mount", "--bind", classes, kept], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", classes], check=True)
    for one in kept.iterdir():
        (classes / one.name).mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", one, classes / one.name], check=True)
    port = classes / f"infiniband/{DEVICE}/ports/1"
    (port / "counters").mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    for name in ("port_rcv_data", "port_xmit_data"):
        (port / "counters" / name).write_text("1000\n")
    return port


class Lab:
    """The processes, by name; all end with it."""

    def __init__(self, verbs3: Path, prometheus: Path, etcd: Path, fake_verbs: Path, folder: Path) -> None:
        self.verbs3, self.prometheus, self.etcd, self.fake_verbs, self.folder = verbs3, prometheus, etcd, fake_verbs, folder
        self.processes: dict[str, subprocess.Popen] = {}
        self.admin = dict(ADMIN)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for words in ("add rail0 type veth peer name rail1", "set rail0 up", "set rail1 up"):
            subprocess.run(["ip", "link", *words.split()], check=True)
        subprocess.run(["ip", "address", "add", f"{RAIL}/24", "dev", "rail0"], check=True)
        self.port = show_port(folder)
        self.drive = folder / "drive"
        self.drive.mkdir()
        # Smaller than the folders' capacity, so that it can fill up.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", self.drive], check=True)
        self.spawn("store", [verbs3, "dev", "--no-demo", "--listen", f"127.0.0.1:{STORE}", "--dir", folder / "store", "--ready-file", folder / "store.ready"])
        wait("the store", lambda: (folder / "store.ready").exists())
        self.keys = tomllib.loads((folder / "store/identities.toml").read_text())["identity"][0]
        subprocess.run([ROOT / "deploy/certificates.sh", folder / "pki", "localhost"], check=True)
        self.spawn("odd-store", [sys.executable, Path(__file__).with_name("odd_store.py"), ODD_STORE, STORE, folder / "odd-store.lies"])
        self.make_node_certificates()
        self.start_etcd(folder / "etcd")
        self.serve("coordinator", "coordinator", 9501)
        for number, port in enumerate((9401, 9411)):
            self.serve(f"worker-{number}", "worker", port)
        self.serve("gateway", "gateway", 9001)
        wait("the gateway", lambda: get("http://127.0.0.1:9001/readyz") is not None)
        wait("both workers", lambda: "verbs3_coordinator_members 2" in get("http://127.0.0.1:9501/metrics"))

    def collect(self) -> None:
        """Starts the collector."""
        self.spawn("collector", [self.prometheus / "prometheus", f"--config.file={self.collector()}", f"--storage.tsdb.path={self.folder / 'series'}",
                                 f"--web.listen-address=127.0.0.1:{COLLECTOR}"])
        wait("the collector", lambda: get(f"http://127.0.0.1:{COLLECTOR}/-/ready"))
        # It takes its time, and sees nothing of what was before.
        wait("a scrape of each", lambda: len(self.ask("up == 1")) == sum(map(len, self.admin.values())))

    def start_etcd(self, folder: Path) -> None:
        """What is in FOLDER, which may be nothing; it answers nobody without a certificate."""
        server = self.folder / "etcd-server"
        if not server.exists():
            shutil.copytree(self.folder / "pki", server)
        self.spawn("etcd", [self.etcd, "--data-dir", folder, "--listen-client-urls", f"https://127.0.0.1:{ETCD}",
                            "--advertise-client-urls", f"https://localhost:{ETCD}", "--listen-peer-urls", "http://127.0.0.1:2380",
                            "--client-cert-auth", "--trusted-ca-file", server / "ca.crt", "--cert-file", server / "members.crt",
                            "--key-file", server / "members.key", "--unsafe-no-fsync"])

    def make_node_certificates(self) -> None:
        """The files of cluster.tls, below node/."""
        authority = Authority(self.folder / "node")
        for node in ("gateway/one", "coordinator/one", "worker/worker-0", "worker/worker-1", "operator/tests"):
            made = authority.secret({"uris": [f"verbs3://verbs3/{node}"], "dnsNames": ["localhost"], "usages": list(USAGES)})
            name = node.replace("/", "-")
            (self.folder / f"node/{name}.crt").write_text(made["tls.crt"])
            (self.folder / f"node/{name}.key").write_text(made["tls.key"])

    def collector(self) -> Path:
        path = self.folder / "prometheus.yml"
        jobs = [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]} for job, ports in self.admin.items()]
        said = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(ROOT / "deploy/prometheus/verbs3.rules.yaml")], "scrape_configs": jobs}
        path.write_text(json.dumps(said))
        return path

    def config(self, node: str, rail: str = RAIL) -> Path:
        """The file of a process, by its role and name: worker-1."""
        worker = int(node.removeprefix("worker-")) if node.startswith("worker-") else 0
        certificate = f"worker-{node}" if node.startswith("worker-") else f"{node}-{'tests' if node == 'operator' else 'one'}"
        path = self.folder / f"{node}.toml"
        path.write_text(f"""\
[cluster]
secret = "{SECRET}"
coordinators = ["https://localhost:9500"]
# So a stranger without a certificate gets as far as the secret.
tls = {{ certificate = "node/{certificate}.crt", key = "node/{certificate}.key", ca_file = "node/ca.crt", mode = "use" }}
[[ufs]]
name = "store"
endpoint = "http://127.0.0.1:{STORE}"
credentials = {{ kind = "static", access_key_id = "{self.keys['access_key']}", secret_access_key = "{self.keys['secret_key']}" }}
retries = {{ attempts_max = 1 }}
[[ufs]]
name = "odd"
endpoint = "http://127.0.0.1:{ODD_STORE}"
credentials = {{ kind = "static", access_key_id = "{self.keys['access_key']}", secret_access_key = "{self.keys['secret_key']}" }}
[[mount]]
name = "odd"
ufs = "odd"
bucket = "demo"
[[mount]]
name = "past"
ufs = "odd"
bucket = "demo"
cached = false
[[mount]]
name = "*"
ufs = "store"
[verbs]
rails = ["{rail}"]
[gateway]
identities = "{self.folder}/store/identities.toml"
tls = {{ certificate = "{self.folder}/pki/members.crt", key = "{self.folder}/pki/members.key" }}
limits = {{ requests_in_flight_max = 4 }}
timeouts = {{ turn_wait = "1s" }}
read = {{ bypass_in_flight_max = 2, bypass_wait_max = "100ms" }}
[worker]
id = "worker-{worker}"
listen = "127.0.0.1:{9400 + 10 * worker}"
advertise = "127.0.0.1:{9400 + 10 * worker}"
admin_listen = "127.0.0.1:{9401 + 10 * worker}"
memory = {{ capacity = "16MiB" }}
shm = {{ socket = "{self.folder}/worker-{worker}.sock" }}
[[worker.disk.folders]]
path = "{self.drive}/worker-{worker}"
capacity = "256MiB"
[coordinator]
advertise = "https://localhost:9500"
lease = "6s"
[coordinator.store]
kind = "etcd"
endpoints = ["https://localhost:{ETCD}"]
ca_file = "{self.folder}/pki/ca.crt"
certificate = "{self.folder}/pki/coordinators.crt"
key = "{self.folder}/pki/coordinators.key"
""".replace('"node/', f'"{self.folder}/node/'))
        return path

    def spawn(self, name: str, words: list) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                                    env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.fake_verbs), "FAKE_NETWORK": RAIL.split(".")[0]})

    def serve(self, name: str, role: str, port: int, rail: str = RAIL) -> None:
        self.spawn(name, [self.verbs3, role, "--config", self.config(name, rail)])

        def is_there() -> bool:
            if self.processes[name].poll() is not None:
                raise Broken(f"{name} has ended: {(self.folder / f'{name}.log').read_text()[-1000:]}")
            return get(f"http://127.0.0.1:{port}/healthz") is not None

        wait(name, is_there)

    def end(self, name: str | None = None, how: int = signal.SIGTERM) -> None:
        for one in [name] if name else reversed(list(self.processes)):
            process = self.processes.pop(one)
            process.send_signal(how if name else signal.SIGKILL)
            process.wait(timeout=WITHIN)

    def client(self):
        return boto3.client("s3", endpoint_url="https://localhost:9000", verify=str(self.folder / "pki/ca.crt"), region_name="us-east-1",
                            aws_access_key_id=self.keys["access_key"], aws_secret_access_key=self.keys["secret_key"],
                            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, connect_timeout=5, read_timeout=20))

    def use(self, keys: range, megabytes: int = 1) -> None:
        """Writes objects, reads each twice, and asks for what is not there. It only makes traffic, of which a part may fail."""
        client = self.client()

        def write_and_read(key: int) -> None:
            client.put_object(Bucket="demo", Key=f"lab/{key}", Body=os.urandom(megabytes << 20))
            for _ in range(2):
                client.get_object(Bucket="demo", Key=f"lab/{key}")["Body"].read()

        for key in keys:
            self.fail(lambda key=key: write_and_read(key))
        self.fail(lambda: client.list_objects_v2(Bucket="demo"))
        self.fail(lambda: client.get_object(Bucket="demo", Key="nothing"))

    def fail(self, call) -> None:
        try:
            call()
        except (ClientError, BotoCoreError):
            pass

    def preload(self, *what: str) -> None:
        command = [self.verbs3, "preload", *what, "--config", self.config("operator"), "--follow"]
        subprocess.run(command, capture_output=True, timeout=WITHIN, env={"PATH": os.environ["PATH"]})

    def scrape(self) -> dict[tuple[str, str], str]:
        """What is at /metrics, by job and instance."""
        found = {}
        for job, ports in self.admin.items():
            for port in ports:
                try:
                    found[job, f"127.0.0.1:{port}"] = get(f"http://127.0.0.1:{port}/metrics")
                except OSError:
                    continue
        return found

    def everything(self) -> dict[tuple, float]:
        """Every sample, with `up`, which is the collector's own."""
        found = samples(self.scrape())
        for job, ports in self.admin.items():
            for port in ports:
                found["up", (("instance", f"127.0.0.1:{port}"), ("job", job))] = 1.0
        return found

    def ask(self, expression: str) -> list[dict]:
        """What the collector answers to a query."""
        try:
            said = get(f"http://127.0.0.1:{COLLECTOR}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        except urllib.error.HTTPError as error:
            raise Broken(f"{expression}: {error.read().decode()}") from error
        return json.loads(said)["data"]["result"]

    def alerts(self) -> list[dict]:
        return json.loads(get(f"http://127.0.0.1:{COLLECTOR}/api/v1/alerts"))["data"]["alerts"]


SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')


def samples(scraped: dict[tuple[str, str], str]) -> dict[tuple, float]:
    """Each sample by its name and labels, with those that a collector adds."""
    found = {}
    for (job, instance), text in scraped.items():
        for line in text.splitlines():
            match = SAMPLE.match(line)
            if match:
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")) | {"job": job, "instance": instance}
                found[match[1], tuple(sorted(labels.items()))] = float(match[3])
    return found
