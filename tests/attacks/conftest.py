"""Owns the fixtures: the cluster, what an attacker may use of it, and the honest client that is served all the while.

Every case ends with the same questions: was the honest client served, do all processes live, is their memory within its bound.
"""

import os
import resource
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from asked_store import AskedStore  # noqa: E402
from honest import HonestClient  # noqa: E402
from lines import Line, Peer, new_address  # noqa: E402
from processes import Cluster, find_binary, memory_bound  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "crowd: attackers of many addresses may delay newcomers (docs/trust/clients.md)")
    # Thousands of connections need descriptors, here and in the processes.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


# They look back at what all others have done.
LAST = ("test_no_process_has_complained_of_itself", "test_the_highest_of_all_is_within_the_bound")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.name in LAST)


@pytest.fixture(scope="session")
def asked():
    store = AskedStore()
    yield store
    store.end()


@pytest.fixture(scope="session")
def cluster(asked):
    folder = Path(os.environ.get("ATTACKS_DIR") or tempfile.mkdtemp(prefix="attacks-"))
    made = Cluster(find_binary(), folder, asked.port)
    for port in (made.store.port, made.shop.port):
        assert Peer(port).call("PUT", "/data").status in (200, 409)
    made.at_rest = {process.name: process.memory() for process in made.processes}
    yield made
    made.end()


def accompany(process):
    """An honest client of this process, from its first rounds to the end of the session."""
    client = HonestClient(process.port).start()
    client.await_rounds(3)
    yield client
    client.stop()


@pytest.fixture(scope="session")
def honest(cluster):
    """Of the gateway before the cluster."""
    yield from accompany(cluster.gateway)


@pytest.fixture(scope="session")
def honest_shop(cluster):
    """Of the gateway over a folder."""
    yield from accompany(cluster.shop)


@pytest.fixture(autouse=True)
def unharmed(request, cluster, honest, honest_shop):
    """After each case: honest clients were served, nothing has ended, and the gateways' memory is within their bound."""
    clients = [honest, honest_shop]
    marks = [client.mark() for client in clients]
    yield
    for client, mark in zip(clients, marks, strict=True):
        client.await_service()
        client.assert_served(mark, among_crowd=request.node.get_closest_marker("crowd") is not None)
    for process in cluster.processes:
        assert process.is_alive(), f"{process.name} has ended:\n{process.log.read_text()[-3000:]}"
    for process in (cluster.gateway, cluster.tls, cluster.shop):
        check_memory(cluster, process)


def check_memory(cluster, process):
    held, bound = process.memory(), memory_bound(cluster.at_rest[process.name])
    assert held <= bound, f"{process.name} holds {held >> 20} MiB; its configuration bounds it by {bound >> 20} MiB"


@pytest.fixture
def held():
    """Lines that a case opens and holds; they are closed when it ends."""
    lines: list[Line] = []
    yield lines
    for line in lines:
        line.close()


@pytest.fixture
def source():
    """An address that this case's attacker has for itself."""
    return new_address()


@pytest.fixture
def gateway(cluster, source):
    """The gateway before the cluster, as the owner's client sees it from the attacker's address."""
    return Peer(cluster.gateway.port, source=source)


@pytest.fixture
def shop(cluster, source):
    return Peer(cluster.shop.port, source=source)


@pytest.fixture
def store(cluster):
    """The store behind the gateway: what was really kept."""
    return Peer(cluster.store.port)
