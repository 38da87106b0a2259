"""What was stolen and then taken away opens nothing any more; what takes its place works, and nobody else notices."""

import ssl
import subprocess

import pytest
from lines import Peer, await_that
from processes import IDENTITIES, Key

OLD, NEW = Key("AKOLD", "an-old-secret-key"), Key("AKNEW", "a-new-secret-key")


def identity(key: Key) -> str:
    rule = '{ mount = "*", rights = ["read", "write", "list"] }'
    return f'\n[[identity]]\nname = "rotated"\naccess_key = "{key.access}"\nsecret_key = "{key.secret}"\nallow = [{rule}]\n'


@pytest.fixture
def identities(cluster):
    """identities(keys): puts a file into force that has these beside the others."""
    file = cluster.folder / "identities.toml"

    def put(*keys: Key):
        fresh = file.with_suffix(".new")
        fresh.write_text(IDENTITIES + "".join(identity(key) for key in keys))
        fresh.rename(file)

    yield put
    put()


def test_a_key_that_was_taken_away_opens_nothing(cluster, gateway, identities, honest):
    old, new = gateway.by(OLD), gateway.by(NEW)
    identities(OLD)
    await_that(lambda: old.call("PUT", "/data/rotated", body=b"x").status == 200, "the key is not known")
    url = old.presigned("GET", "/data/rotated", expires=3600)
    assert old.send(url).status == 200
    with old.line() as kept:
        kept.say(old.signed("GET", "/data/rotated").wire())
        assert kept.read_answer().status == 200
        identities(OLD, NEW)
        await_that(lambda: new.call("GET", "/data/rotated").status == 200, "the new key is not known")
        assert old.call("GET", "/data/rotated").status == 200
        identities(NEW)
        await_that(lambda: old.call("GET", "/data/rotated").status == 403, "the old key is still taken")
        # Neither over a connection that it has opened, nor by what it has signed.
        kept.say(old.signed("GET", "/data/rotated").wire())
        assert kept.read_answer().status in (0, 403)
        assert old.send(url).status == 403
    assert new.call("GET", "/data/rotated").status == 200
    honest.await_rounds(1)


def test_a_broken_identities_file_changes_nothing(cluster, gateway, honest):
    """Written in place, and cut short. An empty file is no broken one: it has no identities."""
    file, stranger = cluster.folder / "identities.toml", Key("AKBROKEN", "a-broken-secret-key")
    for broken in (
        "[[identity]]",
        IDENTITIES[:300],
        IDENTITIES + identity(stranger) * 2,
        IDENTITIES + "\0",
        IDENTITIES + identity(stranger) + "[[identity",
    ):
        refused = cluster.gateway.log.read_text().count("the changed identities file is bad")
        file.write_text(broken)
        await_that(
            lambda: cluster.gateway.log.read_text().count("the changed identities file is bad") > refused, "the file was not looked at"
        )  # noqa: B023
        honest.await_rounds(1)
        assert gateway.by(stranger).call("GET", "/data").status == 403
        file.write_text(IDENTITIES)
    await_that(lambda: gateway.call("GET", "/data").status == 200, "the owner is not known")


def test_a_certificate_that_was_replaced_is_shown_to_newcomers(cluster, source):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shown = []

    def wrap(plain):
        wrapped = context.wrap_socket(plain, server_hostname="localhost")
        shown.append(wrapped.getpeercert(binary_form=True))
        return wrapped

    peer = Peer(cluster.tls.port, source=source, wrap=wrap)
    assert peer.call("GET", "/data").status == 200
    first = shown[-1]
    try:
        cluster.make_certificate()
    except subprocess.CalledProcessError as error:
        pytest.fail(str(error.stderr))
    await_that(lambda: peer.call("GET", "/data").status == 200 and shown[-1] != first, "the old certificate is still shown")
