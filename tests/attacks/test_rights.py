"""Rights: what an identity reaches past its own. The store behind `asked` grants everything, so what it was asked is what got through."""

import base64
import hashlib
import json
import time

import pytest
from lines import Peer, await_that
from processes import ADMIN, HALF_ADMIN, NARROW, OTHER_WARMER, OWNER, WARMER, WRITER


def md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body).digest()).decode()


RETENTION = b"<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2099-01-01T00:00:00Z</RetainUntilDate></Retention>"
HOLD = b"<LegalHold><Status>ON</Status></LegalHold>"
PUBLIC = (
    b'<AccessControlPolicy><Owner><ID>a</ID></Owner><AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    b'xsi:type="Group"><URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>'
    b"</AccessControlList></AccessControlPolicy>"
)


@pytest.fixture
def reached(asked):
    """reached(): what the store was asked since the case began, preflights and CORS left out."""
    mark = len(asked.requests)
    return lambda: [(method, path) for method, path in asked.since(mark) if "cors" not in path]


MORE_THAN_WRITES = [
    ("PUT", [("acl", "")], {"x-amz-acl": "public-read"}, b""),
    ("PUT", [("acl", "")], {}, PUBLIC),
    ("PUT", [("acl", "")], {"x-amz-acl": "private"}, b""),
    ("PUT", [("retention", "")], {}, RETENTION),
    ("PUT", [("legal-hold", "")], {}, HOLD),
    ("PUT", [("retention", "")], {"x-amz-bypass-governance-retention": "true"}, RETENTION),
    ("DELETE", [], {"x-amz-bypass-governance-retention": "true"}, b""),
    ("DELETE", [], {"x-amz-bypass-governance-retention": "TRUE"}, b""),
    ("PUT", [], {"x-amz-acl": "public-read"}, b"x"),
    ("PUT", [], {"x-amz-acl": "PUBLIC-READ-WRITE"}, b"x"),
    ("PUT", [], {"x-amz-acl": "authenticated-read"}, b"x"),
    ("PUT", [], {"x-amz-acl": "aws-exec-read"}, b"x"),
    ("PUT", [], {"x-amz-acl": ""}, b"x"),
    ("PUT", [], {"x-amz-grant-read": 'uri="http://acs.amazonaws.com/groups/global/AllUsers"'}, b"x"),
    ("PUT", [], {"x-amz-grant-full-control": 'id="a"'}, b"x"),
    ("PUT", [], {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": "2099-01-01T00:00:00Z"}, b"x"),
    ("PUT", [], {"x-amz-object-lock-legal-hold": "ON"}, b"x"),
    ("POST", [("uploads", "")], {"x-amz-acl": "public-read"}, b""),
    ("POST", [("uploads", "")], {"x-amz-object-lock-legal-hold": "ON"}, b""),
    ("PUT", [], {"x-amz-copy-source": "/asked/mine/a", "x-amz-acl": "public-read"}, b""),
    ("PUT", [], {"x-amz-copy-source": "/asked/mine/a", "x-amz-grant-read-acp": 'id="a"'}, b""),
]


@pytest.mark.parametrize("method,query,headers,body", MORE_THAN_WRITES)
def test_write_neither_opens_nor_locks(gateway, reached, method, query, headers, body):
    writer = gateway.by(WRITER)
    if body:
        headers = headers | {"content-md5": md5(body)}
    assert writer.call(method, "/asked/mine/x", query=query, headers=headers, body=body).status in (400, 403)
    assert writer.send(writer.presigned(method, "/asked/mine/x", query=query, headers=headers, body=body)).status in (400, 403)
    assert reached() == []


BUCKET_WIDE = [
    "acl",
    "policy",
    "cors",
    "lifecycle",
    "replication",
    "logging",
    "inventory",
    "versioning",
    "encryption",
    "tagging",
    "website",
    "notification",
    "object-lock",
    "publicAccessBlock",
    "ownershipControls",
    "accelerate",
    "requestPayment",
    "analytics",
    "metrics",
    "intelligent-tiering",
]


@pytest.mark.parametrize("what", BUCKET_WIDE)
@pytest.mark.parametrize("method", ["PUT", "DELETE", "GET"])
def test_write_does_not_reach_the_buckets_settings(gateway, asked, method, what):
    if method == "GET" and what in ("versioning", "object-lock"):
        pytest.skip("whether a bucket has versions and locks is told to whoever sees it")
    mark = len(asked.requests)
    answer = gateway.by(WRITER).call(method, "/asked", query=[(what, ""), ("id", "1")], body=b"<A></A>" if method == "PUT" else b"")
    assert answer.status in (400, 403, 405, 501), answer
    assert [path for _, path in asked.since(mark) if what in path] == []


def test_a_bucket_is_neither_made_nor_removed_by_a_writer(gateway, reached):
    for method, path in (("PUT", "/asked"), ("DELETE", "/asked"), ("PUT", "/never"), ("DELETE", "/data")):
        assert gateway.by(WRITER).call(method, path).status in (403, 404)
    assert reached() == []


def replication(bucket):
    return (
        f"<ReplicationConfiguration><Role>r</Role><Rule><ID>a</ID><Status>Enabled</Status><Prefix></Prefix><Destination><Bucket>{bucket}</Bucket>"
        "</Destination></Rule></ReplicationConfiguration>"
    ).encode()


def logging(bucket):
    return (
        f"<BucketLoggingStatus><LoggingEnabled><TargetBucket>{bucket}</TargetBucket><TargetPrefix>p</TargetPrefix></LoggingEnabled>"
        "</BucketLoggingStatus>"
    ).encode()


def inventory(bucket):
    return (
        "<InventoryConfiguration><Id>1</Id><IsEnabled>true</IsEnabled><IncludedObjectVersions>All</IncludedObjectVersions><Schedule><Frequency>Daily"
        f"</Frequency></Schedule><Destination><S3BucketDestination><Bucket>{bucket}</Bucket><Format>CSV</Format></S3BucketDestination></Destination>"
        "</InventoryConfiguration>"
    ).encode()


def analytics(bucket):
    return (
        "<AnalyticsConfiguration><Id>1</Id><StorageClassAnalysis><DataExport><OutputSchemaVersion>V_1</OutputSchemaVersion><Destination>"
        f"<S3BucketDestination><Format>CSV</Format><Bucket>{bucket}</Bucket></S3BucketDestination></Destination></DataExport></StorageClassAnalysis>"
        "</AnalyticsConfiguration>"
    ).encode()


NAMED = [
    "secret",
    "arn:aws:s3:::secret",
    "arn:aws:s3:::never",
    "never",
    "data",
    "part",
    "arn:aws:s3:::part",
    "arn:aws:s3:us-east-1:1:accesspoint/secret",
    "arn:aws:s3:::secret/x",
    "ARN:aws:s3:::secret",
    " secret",
    "arn:aws-cn:s3:::secret",
    "",
    "asked/../secret",
    "https://evil.test/",
]


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize(
    "what,document", [("replication", replication), ("logging", logging), ("inventory", inventory), ("analytics", analytics)]
)
def test_admin_reaches_no_other_bucket(gateway, reached, what, document, named):
    query = [(what, "")] + ([("id", "1")] if what in ("inventory", "analytics") else [])
    answer = gateway.by(ADMIN).call("PUT", "/asked", query=query, body=document(named))
    assert 400 <= answer.status < 500 or answer.status == 501, answer
    assert reached() == []


FOREIGN = b"<Account>666666666666</Account><AccessControlTranslation><Owner>Destination</Owner></AccessControlTranslation></Destination>"
GRANTS = PUBLIC.split(b"<AccessControlList>")[1].split(b"</AccessControlList>")[0]


@pytest.mark.parametrize(
    "what,document",
    [
        ("logging", logging("secret").replace(b"<TargetPrefix>", b"<TargetGrants>" + GRANTS + b"</TargetGrants><TargetPrefix>")),
        ("replication", replication("arn:aws:s3:::secret")),
        ("replication", replication("arn:aws:s3:::secret").replace(b"</Destination>", FOREIGN)),
    ],
)
def test_admin_does_not_open_or_lock_a_bucket_it_may_write_to(gateway, reached, what, document):
    """Its own document is judged like its own requests there: the store would set the ACL in its name."""
    half = gateway.by(HALF_ADMIN)
    assert half.call("PUT", "/secret/k", headers={"x-amz-acl": "public-read"}, body=b"x").status == 403
    assert half.call("PUT", "/asked", query=[(what, "")], body=document).status == 403
    assert reached() == []
    assert half.call("PUT", "/asked", query=[("logging", "")], body=logging("secret")).status == 200


def test_admin_may_name_its_own_bucket(gateway, reached):
    """The cases above would pass as well if nobody could configure anything."""
    admin = gateway.by(ADMIN)
    assert admin.call("PUT", "/asked", query=[("replication", "")], body=replication("arn:aws:s3:::asked")).status == 200
    assert admin.call("PUT", "/asked", query=[("logging", "")], body=logging("asked")).status == 200
    assert len(reached()) == 2


@pytest.mark.parametrize(
    "document",
    [
        b"<RestoreRequest><Type>SELECT</Type><OutputLocation><S3><BucketName>secret</BucketName><Prefix>p</Prefix></S3></OutputLocation></RestoreRequest>"
    ],
)
def test_a_restore_writes_nowhere_else(gateway, reached, document):
    assert gateway.by(ADMIN).call("POST", "/asked/k", query=[("restore", "")], body=document).status in (400, 403, 501)
    assert reached() == []


BORDERS = [
    "a/b",
    "a/bc",
    "a/b_",
    "a//b/c",
    "a/",
    "a",
    "/a/b/c",
    "A/B/c",
    "a/B/c",
    "a/b/../c",
    "a/b/../../c",
    "a\\b\\c",
    "a/b%2fc",
    "a%2Fb%2Fc",
    "./a/b/c",
    "a/./b/c",
]


@pytest.mark.parametrize("key", BORDERS)
def test_a_prefix_ends_where_it_ends(gateway, store, key):
    """a/b/ is allowed. Keys are text: what looks like a way out of a folder is another key, within the prefix or not."""
    narrow = gateway.by(NARROW)
    inside = key.startswith("a/b/")
    for method in ("PUT", "GET", "DELETE", "HEAD"):
        status = narrow.call(method, f"/data/{key}", body=b"x" if method == "PUT" else b"").status
        assert (status == 403) is not inside or (inside and status in (200, 204, 400, 404)), (method, status)
    if not inside:
        assert store.call("HEAD", f"/data/{key}").status in (400, 404)


@pytest.mark.parametrize("prefix", ["", "a/", "a/b", "a", "A/B/", "a/bc/", "%61/b/", "a/b/../"])
def test_listings_stay_within_the_prefix(gateway, prefix):
    gateway.call("PUT", "/data/a/c", body=b"x")
    narrow = gateway.by(NARROW)
    for query in (
        [("list-type", "2"), ("prefix", prefix)],
        [("prefix", prefix)],
        [("versions", ""), ("prefix", prefix)],
        [("uploads", ""), ("prefix", prefix)],
        [("list-type", "2"), ("prefix", prefix), ("start-after", "a/b/")],
        [("prefix", "a/b/"), ("prefix", prefix)],
    ):
        answer = narrow.call("GET", "/data", query=query)
        assert answer.status in (400, 403, 501) or (prefix.startswith("a/b/") and b"a/c<" not in answer.body), (query, answer)


SOURCES = [
    "/data/a/c",
    "data/a/c",
    "%2Fdata%2Fa%2Fc",
    "/data/a%2Fc",
    "/data//a/c",
    "/secret/x",
    "/asked/x",
    "/data/a/b/../c",
    "/data/a/c?versionId=null",
    "/never/x",
    "arn:aws:s3:us-east-1:1:accesspoint/data/object/a/c",
    "/data/%61/c",
]


@pytest.mark.parametrize("copied", SOURCES)
def test_a_copy_needs_the_right_to_read_its_source(gateway, store, asked, copied):
    gateway.call("PUT", "/data/a/c", body=b"not for everybody")
    mark = len(asked.requests)
    narrow = gateway.by(NARROW)
    for query, method in (([], "PUT"), ([("partNumber", "1"), ("uploadId", "u")], "PUT")):
        answer = narrow.call(method, "/data/a/b/copied", query=query, headers={"x-amz-copy-source": copied})
        assert answer.status in (400, 403, 404, 501), answer
    assert store.call("HEAD", "/data/a/b/copied").status == 404
    assert asked.since(mark) == []


def test_a_batch_is_judged_key_by_key(gateway, store):
    for key in ("a/b/in", "a/out", "a/b", "a/bc"):
        assert gateway.call("PUT", f"/data/{key}", body=b"x").status == 200
    keys = ["a/b/in", "a/out", "a/b", "a/bc", "/a/out", "a/b/../out", "a/b/&#x2e;&#x2e;/../out", "a&#47;out", "<![CDATA[a/out]]>"]
    body = ("<Delete>" + "".join(f"<Object><Key>{key}</Key></Object>" for key in keys) + "</Delete>").encode()

    answer = gateway.by(NARROW).call("POST", "/data", query=[("delete", "")], body=body, headers={"content-md5": md5(body)})
    assert answer.status == 200
    assert answer.body.count(b"<Error>") == 6, answer.body
    assert [store.call("HEAD", f"/data/{key}").status for key in ("a/b/in", "a/out", "a/b", "a/bc")] == [404, 200, 200, 200]


def test_a_batch_that_bypasses_governance_needs_admin(gateway, reached):
    body = b"<Delete><Object><Key>mine/a</Key></Object></Delete>"

    headers = {"content-md5": md5(body), "x-amz-bypass-governance-retention": "true"}
    answer = gateway.by(WRITER).call("POST", "/asked", query=[("delete", "")], body=body, headers=headers)
    assert answer.status == 403 or (answer.status == 200 and b"<Error>" in answer.body)
    assert reached() == []


def test_a_part_of_a_bucket_shows_nothing_else(gateway, store):
    """The mount `part` shows what lies under part/."""
    assert store.call("PUT", "/data/outside", body=b"out").status == 200
    assert store.call("PUT", "/data/part/inside", body=b"in").status == 200
    assert gateway.call("GET", "/part/inside").body == b"in"
    for key in ("outside", "../outside", "..%2Foutside", "/outside", "/../outside", "part/../../outside", "%2e%2e/outside", "./outside"):
        assert gateway.call("GET", f"/part/{key}").status in (400, 404), key
        assert gateway.call("DELETE", f"/part/{key}").status in (204, 400, 404), key
    assert store.call("GET", "/data/outside").body == b"out"
    listed = gateway.call("GET", "/part", query=[("list-type", "2")]).body
    assert b"inside" in listed and b"outside" not in listed and b"<Key>part" not in listed
    for query in ([("acl", "")], [("policy", "")], [("cors", "")], [("lifecycle", "")], [("versioning", "")], [("replication", "")]):
        assert gateway.call("PUT", "/part", query=query, body=b"<A></A>").status in (400, 403, 501)
        assert gateway.call("DELETE", "/part", query=query).status in (400, 403, 405, 501)
    assert gateway.call("DELETE", "/part").status in (400, 403, 409, 501)


def test_uploads_of_others_are_out_of_reach(gateway, store):
    begun = gateway.call("POST", "/data/a/upload", query=[("uploads", "")])
    upload = begun.body.split(b"<UploadId>")[1].split(b"<")[0].decode()
    narrow = gateway.by(NARROW)
    for method, key in (
        ("PUT", "a/upload"),
        ("PUT", "a/b/upload"),
        ("DELETE", "a/upload"),
        ("DELETE", "a/b/upload"),
        ("GET", "a/upload"),
        ("GET", "a/b/upload"),
    ):
        query = [("uploadId", upload)] + ([("partNumber", "1")] if method == "PUT" else [])
        answer = narrow.call(method, f"/data/{key}", query=query, body=b"x" if method == "PUT" else b"")
        assert answer.status in (403, 404), (method, key, answer)
    assert gateway.call("GET", "/data/a/upload", query=[("uploadId", upload)]).status == 200
    assert gateway.call("DELETE", "/data/a/upload", query=[("uploadId", upload)]).status == 204


def preload(peer: Peer, method: str, path: str = "/v1/preload", job=None, query=()):
    answer = peer.call(method, path, query=query, body=json.dumps(job).encode() if job is not None else b"")
    return answer.status, json.loads(answer.body or b"{}")


def test_preload_jobs_of_others_are_out_of_reach(gateway):
    warmer, other = gateway.by(WARMER), gateway.by(OTHER_WARMER)
    gateway.call("PUT", "/data/warm/1", body=b"x" * 1000)
    name = f"job-{time.time_ns():x}"
    state = {}

    def begun():
        state["begun"] = preload(warmer, "POST", job={"id": name, "prefixes": ["s3://data/warm/"]})
        return state["begun"][0] != 503

    await_that(begun, "the coordinator takes no job")
    assert state["begun"][0] in (200, 201, 202), state
    assert preload(other, "GET", f"/v1/preload/{name}")[0] == 404
    assert preload(other, "DELETE", f"/v1/preload/{name}")[0] == 404
    assert preload(other, "POST", job={"id": name, "prefixes": ["s3://data/other/"]})[0] in (403, 404, 409)
    for query in (
        [("owner", "warmer")],
        [("owner", "warmer"), ("limit", "5")],
        [("limit", "5&owner=warmer")],
        [("news", "0&owner=warmer")],
    ):
        assert name not in json.dumps(preload(other, "GET", query=query)[1]), query
        assert preload(other, "GET", f"/v1/preload/{name}", query=query)[0] == 404
        assert preload(other, "DELETE", f"/v1/preload/{name}", query=query)[0] == 404
    assert preload(warmer, "GET", f"/v1/preload/{name}")[0] == 200


@pytest.mark.parametrize(
    "job",
    [
        {"prefixes": ["s3://data/"]},
        {"prefixes": ["s3://data/war"]},
        {"prefixes": ["s3://data/warm"]},
        {"prefixes": ["s3://data/warm/../other/"]},
        {"paths": ["s3://data/other/x"]},
        {"paths": ["s3://asked/x"]},
        {"prefixes": ["s3://data/warm/"], "action": "evict"},
        {"prefixes": ["s3://data/warm/"], "priority": "high"},
        {"prefixes": ["s3://data/warm/"], "pin_ttl": "1h"},
        {"manifest": "s3://data/warm/list"},
        {"prefixes": "s3://data/"},
        {"prefixes": ["S3://data/other/"]},
        {"prefixes": ["s3://DATA/"]},
        {"prefixes": ["http://data/"]},
        {"prefixes": ["s3://data/warm/"], "owner": "owner"},
        [],
        "x",
        None,
        {"prefixes": [["s3://data/"]]},
        {"prefixes": ["s3://data/warm/"], "id": "../other"},
    ],
)
def test_a_job_warms_what_its_sender_may_alone(gateway, job):
    status, told = preload(gateway.by(WARMER), "POST", job=job)
    if "warm/../" in json.dumps(job):
        # A key that begins with warm/: nothing is a folder, and there is no such key.
        assert status < 500
    else:
        assert 400 <= status < 500, (status, told)


def test_keys_without_warm_begin_no_jobs(gateway):
    for key in (WRITER, NARROW, ADMIN):
        assert preload(gateway.by(key), "POST", job={"prefixes": ["s3://data/warm/"]})[0] == 403
    unsigned = gateway.signed("POST", "/v1/preload", body=b"{}").without("authorization")
    assert gateway.send(unsigned).status == 403


def test_twice_named_fields_of_a_job_are_read_once(gateway):
    body = b'{"prefixes": ["s3://data/"], "prefixes": ["s3://data/warm/"], "id": "twice-1"}'
    first = gateway.by(WARMER).call("POST", "/v1/preload", body=body)
    # The judge's reading is what the coordinators get: the second one, which is allowed, and nothing of the first.
    assert first.status in (200, 201, 202, 400, 403)
    if first.status < 300:
        job = gateway.by(WARMER).call("GET", "/v1/preload/twice-1").body
        assert b'"s3://data/"' not in job, job


def test_the_owners_key_is_told_to_nobody(gateway, cluster):
    """No answer of any process shows a secret."""
    from processes import SECRET, fetch

    texts = [gateway.call("GET", "/data/nothing").body, gateway.by(type(OWNER)(OWNER.access, "wrong")).call("GET", "/data").body]
    for process in cluster.processes:
        texts.append(fetch(process.admin).encode())
        # `verbs3 dev` tells its user the key at its start, on purpose.
        if process.command[1] != "dev":
            texts.append(process.log.read_bytes())
    for text in texts:
        for secret in (OWNER.secret, SECRET, "a-token-of-notifications"):
            assert secret.encode() not in text
