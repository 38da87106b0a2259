"""boto3 itself makes fast clients while it is patched, and its own ones before and after."""

import os
import warnings

import boto3
import pytest
import verbs3
from conftest import BUCKET, boto_arguments, in_child, until


@pytest.fixture
def patched(gateway):
    endpoint = f"http://127.0.0.1:{gateway.port}"
    assert verbs3.patch(endpoint, socket=gateway.socket) is True
    yield endpoint
    verbs3.unpatch()


def read(client):
    return client.get_object(Bucket=BUCKET, Key="large")["Body"].read()


def test_clients_sessions_and_resources_are_fast(patched, gateway, objects):
    arguments = boto_arguments(gateway)
    clients = [
        boto3.client("s3", **arguments),
        boto3.client(service_name="s3", **arguments),
        boto3.session.Session().client("s3", **arguments),
        boto3.resource("s3", **arguments).meta.client,
    ]
    for client in clients:
        assert read(client) == objects["large"]
        assert (client.verbs3.fast, client.verbs3.slow) == (1, 0)
    body = boto3.resource("s3", **arguments).Object(BUCKET, "small").get()["Body"].read()
    assert body == objects["small"]
    assert not hasattr(boto3.client("sts", **arguments), "verbs3")


def test_a_key_by_position_is_taken(patched, gateway, objects):
    arguments = boto_arguments(gateway)
    by_place = [arguments[name] for name in ("region_name",)]
    client = boto3.session.Session().client(
        "s3", *by_place, None, True, None, arguments["endpoint_url"],
        arguments["aws_access_key_id"], arguments["aws_secret_access_key"], None, arguments["config"],
    )  # fmt: skip
    assert read(client) == objects["large"] and client.verbs3.fast == 1


def test_twice_is_once_and_unpatch_ends_it(gateway, objects):
    own = boto3.session.Session.client
    endpoint = f"http://127.0.0.1:{gateway.port}"
    for _ in range(3):
        verbs3.patch(endpoint, socket=gateway.socket)
    client = boto3.client("s3", **boto_arguments(gateway))
    assert read(client) == objects["large"]
    assert client.verbs3.fast == 1, "one handler, and not three"
    for _ in range(2):
        verbs3.unpatch()
        assert boto3.session.Session.client is own
    assert not hasattr(boto3.client("s3", **boto_arguments(gateway)), "verbs3")
    assert read(client) == objects["large"] and client.verbs3.fast == 2, "what was made goes on"


def test_a_client_of_verbs3_is_made_once_while_patched(patched, gateway, objects):
    client = verbs3.client("s3", socket=gateway.socket, **boto_arguments(gateway))
    assert read(client) == objects["large"] and client.verbs3.fast == 1


def test_clients_share_one_connection(patched, gateway, objects):
    first = boto3.client("s3", **boto_arguments(gateway))
    read(first)
    before = gateway.metric("verbs3_lending_clients")
    clients = [boto3.client("s3", **boto_arguments(gateway)) for _ in range(20)]
    assert all(read(client) == objects["large"] for client in clients)
    assert gateway.metric("verbs3_lending_clients") <= before
    verbs3.unpatch()
    del first, clients
    import gc

    gc.collect()
    until(lambda: gateway.metric("verbs3_lending_clients") < before)


def test_other_stores_are_left_alone_and_named_once(patched):
    arguments = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with pytest.warns(UserWarning, match="leaves clients of https://elsewhere.test alone"):
        client = boto3.client("s3", endpoint_url="https://elsewhere.test", **arguments)
    assert not hasattr(client, "verbs3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        boto3.client("s3", endpoint_url="https://elsewhere.test", **arguments)


def test_without_a_socket_it_says_no_and_reads_over_http(gateway, objects):
    endpoint = f"http://127.0.0.1:{gateway.port}"
    try:
        assert verbs3.patch(endpoint, socket="/nowhere/patched.sock") is False
        with pytest.warns(UserWarning, match="over HTTP.*gateway.lending.socket"):
            client = boto3.client("s3", **boto_arguments(gateway))
        assert read(client) == objects["large"] and client.verbs3.fast == 0
        # Another socket, later.
        assert verbs3.patch(endpoint, socket=gateway.socket) is True
        client = boto3.client("s3", **boto_arguments(gateway))
        assert read(client) == objects["large"] and client.verbs3.fast == 1
    finally:
        verbs3.unpatch()


def test_temporary_keys_go_over_http(patched, gateway, objects):
    arguments = boto_arguments(gateway) | {"aws_session_token": "temporary"}
    with pytest.warns(UserWarning, match="temporary"):
        # Warned of once for each socket: forget what earlier tests were told.
        from verbs3 import _boto_client

        _boto_client._noticed.clear()
        client = boto3.client("s3", **arguments)
    assert not hasattr(client, "verbs3")


def test_children_make_fast_clients_too(patched, gateway, objects):
    before = boto3.client("s3", **boto_arguments(gateway))
    assert read(before) == objects["large"]

    def read_in_child():
        client = boto3.client("s3", **boto_arguments(gateway))
        good = read(client) == objects["large"] and read(before) == objects["large"]
        return 7 if good and client.verbs3.fast == 1 and before.verbs3.slow == 0 else 1

    for _ in range(3):
        assert in_child(read_in_child) == 7
    assert read(before) == objects["large"] and os.getpid()
