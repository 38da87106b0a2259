"""Owns a second cluster, to which things happen: cables that are pulled, workers that come and go, a store that is away."""

import concurrent.futures
import contextlib
import subprocess
import threading
import time
from pathlib import Path

import botocore.exceptions
from cluster import OBJECT_BYTES, Cluster

RAILED, OTHER, JOINER = "gpu-11", "gpu-12", "gpu-13"
# As the worker calls its rails: device and port.
RAIL = "fake_late1"
MOVE_SECONDS, SECONDS_MAX = 12, 60


class TroubledCluster(Cluster):
    """Its first worker has two rails, of the fake verbs provider."""

    workers = (RAILED, OTHER)
    more = {
        # So that one worker is enough.
        "cluster": "replicas = 1\n",
        "coordinator": f'move_for = "{MOVE_SECONDS}s"\nhot = {{ rate = "1MiB", report_every = "500ms", cool_for = "2s" }}\n',
    }

    def __init__(self, folder: Path):
        self.unplugged, self.library = folder / "unplugged", folder / "fake-verbs"
        self.unplugged.mkdir()
        subprocess.run([Path(__file__).parent / "rails.sh", self.library], check=True)
        super().__init__(folder)
        self.ready_at = time.monotonic()
        self.without_retries = self.make_client(self.gateway_port, retries=0)

    def start_worker(self, name: str, more: str = "", environment: dict[str, str] | None = None):
        if name == RAILED:
            library = str(self.library / "libibverbs.so.1")
            environment = {"LD_LIBRARY_PATH": str(self.library), "LD_PRELOAD": library, "UNPLUGGED": str(self.unplugged)}
            more = '[verbs]\nmode = "on"\n'
        return super().start_worker(name, more, environment)

    def worker(self, name: str):
        """Its newest process."""
        return next(process for process in reversed(self.processes) if process.name == name)

    def unplug(self, device: str):
        (self.unplugged / device).touch()

    def plug_in(self, device: str):
        (self.unplugged / device).unlink()

    def until_first_moves_are_over(self):
        """Slots of workers that join soon after a cluster's first map move at once."""
        time.sleep(max(0, self.ready_at + MOVE_SECONDS + 1 - time.monotonic()))

    def can_read(self, key: str) -> bool:
        """Whether it can be read: what is refused is refused since the store can't be reached."""
        try:
            self.without_retries.get_object(Bucket="demo", Key=key)["Body"].read()
        except botocore.exceptions.ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 503, error
            return False
        return True

    def until(self, is_so, otherwise: str):
        end = time.monotonic() + SECONDS_MAX
        while not is_so():
            assert time.monotonic() < end, otherwise
            time.sleep(0.2)

    @contextlib.contextmanager
    def reading(self, *keys: str):
        """Reads these all the time, whether they can be read or not."""
        is_over = threading.Event()

        def read():
            while not is_over.wait(0.02):
                for key in keys:
                    self.can_read(key)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            reader = pool.submit(read)
            try:
                yield
            finally:
                is_over.set()
                reader.result()

    def fill(self, prefix: str, count: int) -> list[str]:
        keys = [f"{prefix}/{number:02}.bin" for number in range(count)]
        for key in keys:
            self.client.put_object(Bucket="demo", Key=key, Body=bytes(OBJECT_BYTES))
        return keys
