"""Gateways and workers that are killed under readers: no wrong byte, no read without an end, and
nothing that stays borrowed."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import checked_reads
import pytest
from conftest import ACCESS_KEY, SECRET_KEY, until
from small_cluster import SmallCluster

# By hand a thousand of each: KILLS=1000.
KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("SEED") or random.randrange(1 << 32))
# How long a process serves, is away, and has begun to start when it is killed. Clients look for a
# gateway twice a second at least.
SERVES_FOR_MAX, AWAY_FOR_MAX, BEGUN_FOR_MAX = 0.8, 0.3, 0.1
# A batch may meet several kills. Each costs a start of the process, and a pause of its clients.
LONGEST_READ = 30.0
# What HTTP's reads may say while the gateway is away. By lent memory it is waited for.
AWAY = {
    "ConnectionClosedError",
    "EndpointConnectionError",
    "IncompleteReadError",
    "ResponseStreamingError",
}

# What is lent, borrowed or under way: nothing, once all have their answers.
PASSING = (
    "verbs3_lending_clients",
    "verbs3_lending_mappings",
    "verbs3_lending_memory_bytes",
    "verbs3_lending_page_bytes",
    "verbs3_lending_page_loans",
    "verbs3_lending_reads_in_flight",
    "verbs3_gateway_body_memory_bytes",
    "verbs3_gateway_requests_in_flight",
    "verbs3_client_writes_open",
    "verbs3_read_bypasses_in_flight",
    "verbs3_read_bytes_in_flight",
    "verbs3_rdma_calls_serving",
    "verbs3_rdma_credits_in_use",
    "verbs3_rdma_landings_quarantined",
    "verbs3_rdma_shm_held_bytes",
    "verbs3_rdma_shm_pinned_bytes",
    "verbs3_rdma_shm_pins",
)


@pytest.fixture(scope="module")
def cluster():
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="v3kill") as folder, SmallCluster(folder) as running:
        store = running.store_client()
        store.create_bucket(Bucket=checked_reads.BUCKET)
        checked_reads.write_objects(store)
        yield running


class ReaderProcess:
    """Reads by one way until it is told to end."""

    def __init__(self, cluster, way):
        self.way = way
        self._log = cluster.folder / f"reader-{way}.log"
        known = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL": cluster.endpoint_of("gateway"),
            "AWS_DEFAULT_REGION": "us-east-1",
            "VERBS3_SOCKET": cluster.socket,
        }
        # Told where it stands, if it has to be ended.
        command = [sys.executable, "-X", "faulthandler", checked_reads.__file__, way, str(SEED)]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | known,
                text=True,
            )

    def wait_for_begin(self):
        assert self._process.stdout.readline() == "reading\n", self._log.read_text()

    def end(self):
        """Its figures."""
        try:
            told, _ = self._process.communicate(timeout=4 * LONGEST_READ)
        except subprocess.TimeoutExpired:
            self.kill(signal.SIGABRT)
            raise AssertionError(f"{self.way} hangs:\n{self._log.read_text()}") from None
        assert self._process.returncode == 0, self._log.read_text()
        return json.loads(told)

    def kill(self, how=signal.SIGKILL):
        if self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait()


@pytest.mark.timeout(150 + 6 * KILLS)
@pytest.mark.parametrize(
    "victims", [["gateway"], ["worker-0", "worker-1"]], ids=["gateway", "workers"]
)
def test_reads_end_right_whoever_is_killed(cluster, victims):
    print(f"SEED={SEED}")
    chooser = random.Random(SEED)
    readers = [ReaderProcess(cluster, way) for way in checked_reads.WAYS]
    try:
        for reader in readers:
            reader.wait_for_begin()
        kills = 0
        while kills < KILLS:
            kills += kill_some(cluster, victims, chooser)
        figures = {reader.way: reader.end() for reader in readers}
    finally:
        for reader in readers:
            reader.kill()
    print(json.dumps({"kills": kills, **figures}, indent=1))
    for way, told in figures.items():
        may_fail = AWAY if way == "boto3" and "gateway" in victims else set()
        assert told["wrong"] == 0, told
        assert set(told["failed"]) <= may_fail, told
        assert (told["failed_at_end"], told["slow_at_end"]) == (0, 0), told
        assert told["longest"] <= LONGEST_READ, told
        assert told["reads"] > 2 * len(checked_reads.LENGTHS), told
    moved = cluster.metrics_of("gateway")
    assert moved["verbs3_lending_bytes_in_pages_total"] > 0
    for transport in ("shm", "tcp"):
        assert moved[f'verbs3_rdma_bytes_in_total{{transport="{transport}"}}'] > 0
    assert_nothing_stays(cluster)


def kill_some(cluster, victims, chooser):
    """Kills processes in their work, all of them at once, too, and some in their start. Returns how
    many were killed."""
    time.sleep(chooser.uniform(0, SERVES_FOR_MAX))
    fallen = chooser.sample(victims, chooser.randint(1, len(victims)))
    for name in fallen:
        cluster.kill(name)
    kills = len(fallen)
    time.sleep(chooser.uniform(0, AWAY_FOR_MAX))
    for name in fallen:
        if chooser.random() < 0.2:
            cluster.start(name, waits=False)
            time.sleep(chooser.uniform(0, BEGUN_FOR_MAX))
            cluster.kill(name)
            kills += 1
        cluster.start(name)
    return kills


def assert_nothing_stays(cluster):
    """Nothing is lent or borrowed any more, and no process has panicked."""
    known = set()
    for name in ("gateway", "worker-0", "worker-1"):
        until(lambda name=name: not any(passing_of(cluster, name).values()))
        known |= {series.partition("{")[0] for series in passing_of(cluster, name)}
        assert "panicked" not in cluster.log_of(name)
    assert known == set(PASSING)


def passing_of(cluster, name):
    metrics = cluster.metrics_of(name)
    return {series: metrics[series] for series in metrics if series.partition("{")[0] in PASSING}
