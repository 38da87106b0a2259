"""Path tricks, on a mount of a prefix and on a store whose objects are files: nothing outside is read, written or removed."""

from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from lines import Signed, signer

# Sent as they stand, signed as they are read.
TRICKS = [
    "../outside",
    "..%2foutside",
    "%2e%2e/outside",
    "%2e%2e%2foutside",
    "..%5coutside",
    "..%255c..%255coutside",
    "%252e%252e/outside",
    "./../outside",
    "a/../../outside",
    "a/b/../../../outside",
    "//outside",
    "/%2foutside",
    "%00",
    "a%00b",
    "..%00/outside",
    "%c0%ae%c0%ae/outside",
    "%c0%af..%c0%afoutside",
    "%e0%80%ae%e0%80%ae/outside",
    "%ff%fe",
    "%f0%28%8c%28",
    "%ed%a0%80",
    ".",
    "..",
    "a/.",
    "a/..",
    "%2f",
    "%2f%2f",
    "a%2f..%2f..%2foutside",
    "....//outside",
    "..;/outside",
    "a\\..\\..\\outside",
    "%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "~root/x",
    "$HOME/x",
    "a%0d%0ax-injected:%201",
    "%20",
    "a%20",
    "con",
    "a" * 1025,
    "a/" * 500,
    "%e2%80%ae",
    ".verbs3",
    ".meta/x",
    "%2e",
    "data",
    "%2e%2e%2fdata%2fpart%2f..%2foutside",
]
METHODS = ["GET", "HEAD", "PUT", "DELETE"]


def both_ways(peer, method: str, path: str, body: bytes) -> list[Signed]:
    """Signed as it is sent, and as it is read when it is decoded and encoded again."""
    from urllib.parse import quote, unquote_to_bytes

    requests = []
    for canonical in {path, quote(unquote_to_bytes(path), safe="/-_.~")}:
        head = {"host": peer.host} | ({"content-length": str(len(body))} if method == "PUT" else {})
        made = signer(peer.key).authorize(method, canonical, [], head, "UNSIGNED-PAYLOAD")
        requests.append(Signed(method, path, list(made.items()), body))
    return requests


@pytest.fixture(params=["cluster", "folder"])
def peer(request, gateway, shop):
    return gateway if request.param == "cluster" else shop


@pytest.fixture(params=["cluster", "folder", "every bucket"])
def any_peer(request, gateway, shop, store):
    """The last one mounts every bucket of a folder, those made later included."""
    return {"cluster": gateway, "folder": shop, "every bucket": store}[request.param]


@pytest.mark.parametrize("trick", TRICKS, ids=range(len(TRICKS)))
def test_no_path_leads_out_of_a_mount(peer, cluster, trick):
    whole = peer
    for name in ("outside", "data", "etc/passwd"):
        assert whole.call("PUT", f"/data/{name}", body=b"outside").status == 200
    before = sorted(str(file) for file in cluster.folder.glob("*") if file.name != "token")
    for bucket in ("part", "data"):
        for method in METHODS:
            body = b"forged" if method == "PUT" else b""
            for request in both_ways(peer, method, f"/{bucket}/{trick}", body):
                answer = peer.send(request)
                assert answer.status in (0, 200, 204, 400, 403, 404, 501), (method, trick, answer)
                if bucket == "part" and method == "GET":
                    assert answer.body != b"outside", (trick, answer)
                assert not answer.header("x-injected")
        if bucket == "part":
            for name in ("outside", "data", "etc/passwd"):
                kept = whole.call("GET", f"/data/{name}")
                assert kept.body == b"outside", (name, kept)
    assert sorted(str(file) for file in cluster.folder.glob("*") if file.name != "token") == before


BUCKETS = [
    "..",
    ".",
    "%2e%2e",
    "data%2f..",
    "data%2fpart",
    "..%2fstore",
    "%00",
    "data%00",
    "DATA",
    "data.",
    "-",
    "a" * 300,
    "%c0%ae",
    "data%20",
    ".verbs3",
    "folder",
    "shop",
    "%2fetc",
    "..%2f..%2f..%2f..%2fetc",
]


@pytest.mark.parametrize("bucket", BUCKETS, ids=range(len(BUCKETS)))
def test_no_bucket_name_leads_anywhere(any_peer, cluster, bucket):
    before = sorted(str(file) for file in cluster.folder.glob("*"))
    for method, key in (
        ("PUT", ""),
        ("GET", ""),
        ("GET", "/identities.toml"),
        ("GET", "/passwd"),
        ("PUT", "/x"),
        ("DELETE", ""),
        ("DELETE", "/identities.toml"),
    ):
        for request in both_ways(any_peer, method, f"/{bucket}{key}", b"forged" if key and method == "PUT" else b""):
            answer = any_peer.send(request)
            assert answer.status < 500 or answer.status == 501, answer
            assert b"secret_key" not in answer.body and b"root:" not in answer.body
    assert sorted(str(file) for file in cluster.folder.glob("*")) == before


def test_a_bucket_in_the_hosts_name_is_judged_as_one_in_the_path(gateway):
    for host in (
        "..s3.attacked.test",
        "secret/.s3.attacked.test",
        "data%2f.s3.attacked.test",
        ".s3.attacked.test",
        "data.s3.attacked.test.",
        "data.s3.attacked.test:99999999999",
        "a" * 5000 + ".s3.attacked.test",
    ):
        request = gateway.signed("GET", "/honest/1", host=host)
        assert gateway.send(request).status in (0, 200, 400, 403, 404, 431), host


def test_a_copys_source_is_no_way_out(peer):
    assert peer.call("PUT", "/data/outside", body=b"outside").status == 200
    for source in (
        "/part/../outside",
        "/part/%2e%2e/outside",
        "/part//../outside",
        "part/..%2foutside",
        "/part/%252e%252e/outside",
        "/part/a/../../outside",
        "/part",
        "/",
        "",
        "../data/outside",
        "/data/../data/outside",
        "/part/\udcff",
        "/part/%00",
        "/part/%c0%ae%c0%ae/outside",
    ):
        try:
            answer = peer.call("PUT", "/data/copied", headers={"x-amz-copy-source": source})
        except UnicodeEncodeError:
            continue
        assert answer.status in (0, 400, 403, 404, 501), (source, answer)
    assert peer.call("HEAD", "/data/copied").status == 404


# None has a letter in XML 1.0 but the last, which parsers read as a line feed.
FORBIDDEN = ["\x01", "\x1f", "\ufffe", "\r"]


@pytest.mark.parametrize("name", FORBIDDEN, ids=ascii)
def test_a_key_without_a_letter_in_xml_breaks_no_listing(any_peer, name):
    """Who may write one key would keep everybody else from listing the bucket."""
    key = f"/data/unlisted/{name}x"
    assert any_peer.call("PUT", key, body=b"x").status == 200
    try:
        for query in ([("list-type", "2")], [("list-type", "2"), ("prefix", "unlisted/")], [("versions", "")], []):
            answer = any_peer.call("GET", "/data", query=query)
            assert answer.status == 200, f"{query}: {answer.verdict}"
            assert not any(byte in answer.body for byte in (b"\x01", b"\x1f", b"\xef\xbf\xbe", b"\r")), f"{query}: {answer.body[:400]!r}"
            assert b"&#x" in answer.body, f"{query}: {answer.body[:400]!r}"
        # Strict parsers ask for names as a URL has them, as the SDKs do.
        for query in ([("list-type", "2"), ("encoding-type", "url")], [("versions", ""), ("encoding-type", "url")]):
            answer = any_peer.call("GET", "/data", query=query)
            names = [unquote(found.text or "") for found in ElementTree.fromstring(answer.body).iter() if found.tag.endswith("}Key")]
            assert f"unlisted/{name}x" in names, f"{query}: {answer.body[:400]!r}"
    finally:
        any_peer.call("DELETE", key)
