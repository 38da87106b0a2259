"""A store, two workers and a gateway as processes of their own. Each can be killed, and started
again at its addresses. One worker is reached by shared memory, the other by TCP."""

import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config
from conftest import ACCESS_KEY, IDENTITIES, SECRET_KEY, free_port

NAMES = ("store", "worker-0", "worker-1", "gateway")
STARTS_WITHIN = 60.0

STORE = """
[dev]
dir = "{folder}/store"
demo = false
[gateway]
listen = "{listen}"
admin_listen = "{admin}"
identities = "{folder}/identities.toml"
memory = {{ capacity = "32MiB" }}
[worker]
memory = {{ capacity = "32MiB" }}
[[ufs]]
name = "local"
kind = "local"
path = "{folder}/store/objects"
sync = false
[[mount]]
name = "*"
ufs = "local"
cached = false
"""
SHARED = """
[cluster]
name = "small"
secret = "a secret of the tests, long enough"
workers_fixed = true
[[ufs]]
name = "store"
endpoint = "http://{store}"
[ufs.credentials]
kind = "static"
access_key_id = "{access_key}"
secret_access_key = "{secret_key}"
[[mount]]
name = "*"
ufs = "store"
"""
WORKER = """
[worker]
id = "{name}"
listen = "{listen}"
admin_listen = "{admin}"
memory = {{ capacity = "{worker_memory}" }}
[worker.shm]
"""
# Who was killed is asked again soon after it came back, so that the next kill meets it at work.
GATEWAY = """
[gateway]
listen = "{listen}"
admin_listen = "{admin}"
identities = "{folder}/identities.toml"
memory = {{ capacity = "64MiB" }}
[gateway.lending]
socket = "{folder}/gateway.sock"
pages_total = "16MiB"
[gateway.tier]
first_progress = "500ms"
hedge_after = "100ms"
rest_min = "100ms"
rest_max = "500ms"
[gateway.peers]
pause_max = "300ms"
rest_min = "1s"
rest_max = "2s"
"""


class SmallCluster:
    """Ends its processes at the end of its `with`."""

    def __init__(self, folder, worker_memory="64MiB"):
        self.folder, self._worker_memory = Path(folder), worker_memory
        self.socket = f"{folder}/gateway.sock"
        # The admin pages are at the port after each.
        self.ports = {name: free_port() for name in NAMES}
        self._processes = {}
        (self.folder / "identities.toml").write_text(IDENTITIES)
        for name, text in self._configurations().items():
            (self.folder / f"{name}.toml").write_text(text)

    def __enter__(self):
        try:
            for name in NAMES:
                self.start(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def store_client(self):
        """A boto3 client of the store, which no cache knows of."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_of("store"),
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
            config=Config(proxies={}),
        )

    def endpoint_of(self, name):
        return f"http://127.0.0.1:{self.ports[name]}"

    def log_of(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start(self, name, *, waits=True):
        """Starts a process, and waits until it serves."""
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        role = {"store": "dev"}.get(name, name.partition("-")[0])
        command = [os.environ["PYTHON_BINARY"], role, "--config", str(self.folder / f"{name}.toml")]
        command += ["--ready-file", str(ready)]
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + STARTS_WITHIN
        while waits and not ready.exists():
            if self._processes[name].poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{name} does not serve:\n{self.log_of(name)[-4000:]}")
            time.sleep(0.01)

    def kill(self, name):
        """Kills a process that has to be alive."""
        process = self._processes[name]
        assert process.poll() is None, f"{name} has ended by itself:\n{self.log_of(name)[-4000:]}"
        process.send_signal(signal.SIGKILL)
        process.wait()

    def metrics_of(self, name):
        """What a process says of itself: series to value."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.ports[name] + 1}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        series = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    def _configurations(self):
        shared = SHARED.format(
            store=f"127.0.0.1:{self.ports['store']}", access_key=ACCESS_KEY, secret_key=SECRET_KEY
        )
        workers = [name for name in NAMES if name.startswith("worker")]
        for name in workers:
            address = f"127.0.0.1:{self.ports[name]}"
            shared += f'[[cluster.workers]]\nid = "{name}"\naddress = "{address}"\n'
        ways = [f'socket = "{self.folder}/worker-0.sock"\n', "enabled = false\n"]
        written = {"store": self._section(STORE, "store")}
        for name, way in zip(workers, ways, strict=True):
            written[name] = shared + self._section(WORKER, name) + way
        return written | {"gateway": shared + self._section(GATEWAY, "gateway")}

    def _section(self, section, name):
        port = self.ports[name]
        return section.format(
            name=name,
            folder=self.folder,
            worker_memory=self._worker_memory,
            listen=f"127.0.0.1:{port}",
            admin=f"127.0.0.1:{port + 1}",
        )
