"""Objects that are read in a worker's own memory: what views show, how long they stay, and what
becomes of them when somebody dies."""

import os
import random
import subprocess
import sys
import tempfile

import pytest
from conftest import ACCESS_KEY, BUCKET, SECRET_KEY, until
from small_cluster import SmallCluster

import verbs3

MIB = 1 << 20

# Has {left} descriptors left.
FEW_FILES = """
import os, random, resource, verbs3
reader = verbs3.connect({socket!r}, access_key={access_key!r}, secret_key={secret_key!r}, pages={pages})
first_free = os.dup(0)
os.close(first_free)
resource.setrlimit(resource.RLIMIT_NOFILE, (first_free + {left}, first_free + {left}))
for number in [*range(12), *range(12)]:
    expected = random.Random(number).randbytes(1 << 20)
    assert b"".join(reader.read_pages("pages", f"of-{{number}}")) == expected, number
"""


@pytest.fixture
def reader(gateway, objects):
    return verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, pages=8)


def test_views_are_the_object_and_are_read_only(reader, plain, gateway):
    before = gateway.metric("verbs3_lending_bytes_in_pages_total")
    for length in (0, 1, 65_536, 300_000, 3 * MIB + 5):
        body = random.Random(length).randbytes(length)
        plain.put_object(Bucket=BUCKET, Key=f"pages-{length}", Body=body)
        for _ in range(2):
            views = reader.read_pages(BUCKET, f"pages-{length}")
            assert b"".join(views) == body
            assert all(view.readonly for view in views)
        if length > 100:
            part = reader.read_pages(BUCKET, f"pages-{length}", (7, length - 5))
            assert b"".join(part) == body[7 : length - 5]
    assert gateway.metric("verbs3_lending_bytes_in_pages_total") - before > 3 * MIB
    del views, part
    until(lambda: gateway.metric("verbs3_lending_page_loans") == 0)


def test_errors_are_s3s(reader):
    with pytest.raises(verbs3.S3Error) as refused:
        reader.read_pages(BUCKET, "pages-of-nothing")
    assert refused.value.status == 404


def test_a_reader_without_pages_gets_copies(plain, gateway, objects):
    plain.put_object(Bucket=BUCKET, Key="pages-copied", Body=b"c" * MIB)
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    reader.read("datasets", "pages-copied")
    before = gateway.metric("verbs3_lending_bytes_in_pages_total")
    (view,) = reader.read_pages(BUCKET, "pages-copied")
    assert view == b"c" * MIB
    assert gateway.metric("verbs3_lending_bytes_in_pages_total") == before


def test_a_number_of_pages_that_cannot_be_is_refused(gateway):
    for pages in (-1, 4097):
        with pytest.raises(ValueError, match="pages is from 0 to 4096"):
            verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, pages=pages)


def test_a_child_reads_its_own(reader, plain):
    plain.put_object(Bucket=BUCKET, Key="pages-forked", Body=b"f" * MIB)
    kept = reader.read_pages(BUCKET, "pages-forked")
    child = os.fork()
    if child == 0:
        views = reader.read_pages(BUCKET, "pages-forked")
        os._exit(0 if b"".join(views) == b"f" * MIB else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert b"".join(kept) == b"f" * MIB


@pytest.mark.timeout(300)
def test_views_stay_though_their_gateway_is_killed():
    """The gateway's death must not give the worker its pages back while somebody looks at them."""
    with (
        tempfile.TemporaryDirectory(prefix="v3page") as folder,
        SmallCluster(folder, worker_memory="32MiB") as cluster,
    ):
        store = cluster.store_client()
        store.create_bucket(Bucket="pages")
        bodies = {f"of-{number}": random.Random(number).randbytes(MIB) for number in range(100)}
        for key, body in bodies.items():
            store.put_object(Bucket="pages", Key=key, Body=body)
        asked = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "pages": 8}
        reader = verbs3.connect(cluster.socket, **asked)
        # Some are of the worker that is reached over tcp: those are copied.
        for key in list(bodies)[:20]:
            reader.read("pages", key)
        kept = {key: reader.read_pages("pages", key) for key in list(bodies)[:12]}
        in_pages = cluster.metrics_of("gateway")["verbs3_lending_page_loans"]
        assert in_pages > 2

        # A process that can't take what it is passed: memory, its worker's pipe and the session's.
        for left in (0, 1, 2):
            script = FEW_FILES.format(socket=cluster.socket, left=left, **asked)
            subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

        cluster.kill("gateway")
        cluster.start("gateway")
        for _ in range(2):
            for key, body in bodies.items():
                assert bytes(reader.read("pages", key)) == body
        for key, views in kept.items():
            assert b"".join(views) == bodies[key], key
        assert cluster.metrics_of("worker-0")["verbs3_rdma_shm_pinned_bytes"] > 0
        del kept, views
        until(lambda: cluster.metrics_of("worker-0")["verbs3_rdma_shm_pinned_bytes"] == 0)
