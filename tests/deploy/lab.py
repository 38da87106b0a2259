"""A small cluster of real processes to collect metrics from: store, coordinator, two workers, gateway, and a Prometheus that scrapes them
every second. Things are broken in it on purpose, so that what counts failures is there. Knows no alert and no panel."""

import json
import os
import re
import signal
import subprocess
import time
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from verdict import Broken

ROOT = Path(__file__).resolve().parents[2]
STORE, COLLECTOR = 7480, 9090
ADMIN = {"verbs3-gateway": [9001], "verbs3-worker": [9401, 9411], "verbs3-coordinator": [9501]}
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


class Lab:
    """The processes, by name; all end with it."""

    def __init__(self, verbs3: Path, prometheus: Path, folder: Path) -> None:
        self.verbs3, self.folder, self.processes = verbs3, folder, {}
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self.drive = folder / "drive"
        self.drive.mkdir()
        # Smaller than the folders' capacity, so that it can fill up.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", self.drive], check=True)
        self.spawn("store", [verbs3, "dev", "--no-demo", "--listen", f"127.0.0.1:{STORE}", "--dir", folder / "store", "--ready-file", folder / "store.ready"])
        wait("the store", lambda: (folder / "store.ready").exists())
        self.keys = tomllib.loads((folder / "store/identities.toml").read_text())["identity"][0]
        subprocess.run([ROOT / "deploy/certificates.sh", folder / "pki", "localhost"], check=True)
        self.spawn("collector", [prometheus / "prometheus", f"--config.file={self.collector()}", f"--storage.tsdb.path={folder / 'series'}",
                                 f"--web.listen-address=127.0.0.1:{COLLECTOR}"])
        self.serve("coordinator", "coordinator", 9501)
        for number, port in enumerate((9401, 9411)):
            self.serve(f"worker-{number}", "worker", port, worker=number)
        self.serve("gateway", "gateway", 9001)
        wait("the gateway", lambda: get("http://127.0.0.1:9001/readyz") is not None)
        wait("both workers", lambda: "verbs3_coordinator_members 2" in get("http://127.0.0.1:9501/metrics"))
        # A collector takes its time, and sees nothing of what was before.
        wait("a scrape of each", lambda: len(self.ask("up == 1")) == sum(map(len, ADMIN.values())))

    def collector(self) -> Path:
        path = self.folder / "prometheus.yml"
        jobs = [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]} for job, ports in ADMIN.items()]
        said = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(ROOT / "deploy/prometheus/verbs3.rules.yaml")], "scrape_configs": jobs}
        path.write_text(json.dumps(said))
        return path

    def config(self, worker: int = 0, secret: str = SECRET) -> Path:
        path = self.folder / f"worker-{worker}-{len(secret)}.toml"
        path.write_text(f"""\
[cluster]
secret = "{secret}"
coordinators = ["http://127.0.0.1:9500"]
[[ufs]]
name = "store"
endpoint = "http://127.0.0.1:{STORE}"
credentials = {{ kind = "static", access_key_id = "{self.keys['access_key']}", secret_access_key = "{self.keys['secret_key']}" }}
retries = {{ attempts_max = 1 }}
[[mount]]
name = "*"
ufs = "store"
[verbs]
rails = ["mlx5_0"]
[gateway]
identities = "{self.folder}/store/identities.toml"
tls = {{ certificate = "{self.folder}/pki/members.crt", key = "{self.folder}/pki/members.key" }}
[worker]
id = "worker-{worker}"
listen = "127.0.0.1:{9400 + 10 * worker}"
advertise = "127.0.0.1:{9400 + 10 * worker}"
admin_listen = "127.0.0.1:{9401 + 10 * worker}"
memory = {{ capacity = "32MiB" }}
shm = {{ socket = "{self.folder}/worker-{worker}.sock" }}
[[worker.disk.folders]]
path = "{self.drive}/worker-{worker}"
capacity = "256MiB"
[coordinator]
advertise = "http://127.0.0.1:9500"
lease = "6s"
[coordinator.store]
path = "{self.folder}/coordinator"
""")
        return path

    def spawn(self, name: str, words: list) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                                                    env={"PATH": os.environ["PATH"]})

    def serve(self, name: str, role: str, port: int, **settings) -> None:
        self.spawn(name, [self.verbs3, role, "--config", self.config(**settings)])
        wait(name, lambda: get(f"http://127.0.0.1:{port}/healthz") is not None)

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
        command = [self.verbs3, "preload", *what, "--config", self.config(), "--follow"]
        subprocess.run(command, capture_output=True, timeout=WITHIN, env={"PATH": os.environ["PATH"]})

    def break_things(self) -> None:
        """A drive that somebody fills, a certificate that is none, a peer with another secret, a worker that is killed, a store that is gone."""
        with open(self.drive / "somebody-elses", "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass
        self.use(range(40, 60))
        (self.folder / "pki/members.key").write_text("no key\n")
        stranger = subprocess.Popen([self.verbs3, "worker", "--config", self.config(worker=7, secret="another secret altogether, long enough")], cwd=self.folder,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        fabric = [self.verbs3, "bench", "fabric", "127.0.0.1:9400", "--ways", "tcp", "--seconds", "0.1", "--secret-file", self.folder / "another"]
        (self.folder / "another").write_text("another secret altogether, long enough")
        subprocess.run(fabric, capture_output=True, timeout=WITHIN)
        self.preload("--manifest", "s3://demo/nothing")
        client = self.client()
        self.end("worker-1", signal.SIGKILL)
        for key in range(12):
            self.fail(lambda: client.get_object(Bucket="demo", Key=f"lab/{key}")["Body"].read())
        self.end("store", signal.SIGKILL)
        for key in range(100, 120):
            self.fail(lambda: client.get_object(Bucket="demo", Key=f"lab/{key}")["Body"].read())
        stranger.kill()
        stranger.wait()

    def scrape(self) -> dict[tuple[str, str], str]:
        """What is at /metrics, by job and instance."""
        found = {}
        for job, ports in ADMIN.items():
            for port in ports:
                try:
                    found[job, f"127.0.0.1:{port}"] = get(f"http://127.0.0.1:{port}/metrics")
                except OSError:
                    continue
        return found

    def everything(self) -> dict[tuple, float]:
        """Every sample, with `up`, which is the collector's own."""
        found = samples(self.scrape())
        for job, ports in ADMIN.items():
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
