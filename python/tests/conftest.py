"""A `verbs3 dev` over a folder, with a socket for lent memory; clients of both kinds, and objects to read."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

import verbs3

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/testbed"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from free_ports import free_port  # noqa: E402

ACCESS_KEY, SECRET_KEY = "AKPYTHONTESTS", "a-secret-of-the-python-tests-0123456789"
OTHER_KEY, OTHER_SECRET = "AKPYTHONOTHER", "another-secret-of-the-python-tests-0123"
BUCKET = "datasets"

IDENTITIES = f"""
[[identity]]
access_key = "{ACCESS_KEY}"
secret_key = "{SECRET_KEY}"
[[identity.allow]]
mount = "*"
rights = ["read", "write", "list", "delete", "admin", "warm"]
[[identity]]
access_key = "{OTHER_KEY}"
secret_key = "{OTHER_SECRET}"
[[identity.allow]]
mount = "*"
prefix = "open/"
rights = ["read"]
"""


class Gateway:
    """A process that can be stopped and started again, at the same addresses."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port, self.admin = free_port(), free_port()
        self.socket = str(folder / "gateway.sock")
        self.identities = folder / "identities.toml"
        self.identities.write_text(IDENTITIES)
        (folder / "dev.toml").write_text(
            f"""
[dev]
dir = "{folder}/data"
demo = false
[gateway]
listen = "127.0.0.1:{self.port}"
admin_listen = "127.0.0.1:{self.admin}"
identities = "{self.identities}"
tier = {{ hedge_after = "19s", first_progress = "20s" }}
[gateway.lending]
socket = "{self.socket}"
pages_total = "64MiB"
"""
        )
        self.start()

    def start(self):
        with open(self.folder / "dev.log", "ab") as log:
            command = [os.environ["PYTHON_BINARY"], "dev", "--config", str(self.folder / "dev.toml")]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(1800):
            if self.process.poll() is not None:
                break
            if Path(self.socket).exists():
                return
            time.sleep(0.1)
        raise AssertionError((self.folder / "dev.log").read_text()[-4000:])

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(60)

    def metric(self, name):
        import urllib.request

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(f"http://127.0.0.1:{self.admin}/metrics").read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    # A socket's path is short.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="v3py") as folder:
        running = Gateway(Path(folder))
        yield running
        running.stop()


def boto_arguments(gateway, access_key=ACCESS_KEY, secret_key=SECRET_KEY):
    return {
        "endpoint_url": f"http://127.0.0.1:{gateway.port}",
        "aws_access_key_id": access_key,
        "aws_secret_access_key": secret_key,
        "region_name": "us-east-1",
        "config": Config(proxies={}, retries={"max_attempts": 2}),
    }


@pytest.fixture(scope="session")
def plain(gateway):
    return boto3.client("s3", **boto_arguments(gateway))


@pytest.fixture(scope="session")
def fast(gateway):
    return verbs3.client("s3", socket=gateway.socket, **boto_arguments(gateway))


@pytest.fixture
def reader(gateway):
    return verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="16MiB")


def pattern(count, seed=1):
    """`count` bytes, each of which says where it is, up to its period of 251."""
    period = bytes((at * seed) % 251 for at in range(251))
    return (period * (count // 251 + 1))[:count]


@pytest.fixture(scope="session")
def objects(plain):
    """Name to bytes of what is there."""
    made = {
        "empty": b"",
        "small": pattern(4096),
        "odd": pattern(12_345),
        "large": pattern(3_000_001, 7),
        "open/a b/\u00e9?&+.txt": b"an odd name",
    }
    plain.create_bucket(Bucket=BUCKET)
    for key, body in made.items():
        plain.put_object(
            Bucket=BUCKET,
            Key=key,
            Body=body,
            ContentType="application/x-test",
            CacheControl="max-age=7",
            Metadata={"owner": "tests", "length": str(len(body))},
        )
    return made


@pytest.fixture(scope="session")
def examples(plain):
    """The bucket that the documents read from."""
    import example_objects

    return example_objects.write_examples(plain)


@pytest.fixture
def environment(gateway, examples, monkeypatch):
    """What a job finds in its environment where a gateway is set up."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gateway.port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "VERBS3_SOCKET": gateway.socket,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    return examples


def in_child(run):
    """What `run` returns in a forked child, as an exit status; a signal is negative."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            signal.alarm(60)
            status = run()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_in_work(code, gateway, begun, within):
    """Runs a script with socket and keys, and kills it within some seconds of its first line."""
    command = [sys.executable, "-c", code, gateway.socket, ACCESS_KEY, SECRET_KEY]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout.readline() == begun
    time.sleep(random.uniform(0, within))
    child.kill()
    child.wait()
    child.stdout.close()


def until(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("did not come true within 2 minutes")
