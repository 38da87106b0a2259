"""Owns the fixtures: recorded clients for writing (s3, raw) and reading (s3r, rawr), buckets, and `expect`.

`expect` and `check` hold what S3 in general does against what came; a store's known deviations (deviations.py) are
compared with the value that was observed there, never skipped.
"""

import os
import time
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import deviations  # noqa: E402
import endpoint  # noqa: E402
import record  # noqa: E402
from client import Client, boto  # noqa: E402
from record import Recorder  # noqa: E402
from wire import Wire  # noqa: E402


def case_name(item) -> str:
    return item.nodeid.rsplit("s3suite/", 1)[-1]


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(feature): skipped, with that reason, where S3_WITHOUT names the feature")
    record.start()


def pytest_collection_modifyitems(config, items):
    for item in items:
        for mark in item.iter_markers("needs"):
            if mark.args[0] in endpoint.without():
                item.add_marker(pytest.mark.skip(reason=f"S3_WITHOUT names {mark.args[0]}"))
    whole_files = {case_name(item).split("::")[0] for item in items} if not any("::" in arg for arg in config.args) else set()
    if config.getoption("keyword") or config.getoption("lf", False):
        whole_files = set()
    known = config.suite_deviations = deviations.load()
    deviations.refuse_unknown(known, whole_files, {case_name(item) for item in items})
    crashes = {} if deviations.behind_gateway() else {entry.case: entry.reason for entry in known.crashes}
    for item in items:
        if reason := crashes.get(case_name(item)):
            item.add_marker(pytest.mark.skip(reason=f"ends the store's process: {reason}"))
            record.write([{"case": case_name(item), "step": "outcome", "value": f"{record.NOT_ASKED}: {reason}"}])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.suite_outcome = report.outcome
    return report


@pytest.fixture(scope="session")
def writer():
    return endpoint.writer()


@pytest.fixture(scope="session")
def reader():
    return endpoint.reader()


@pytest.fixture(scope="session")
def plain_clients(writer, reader):
    return boto(writer), boto(reader)


@pytest.fixture
def recorder(request, writer, reader):
    made = Recorder(case_name(request.node), [writer.url, reader.url, writer.authority, reader.authority])
    yield made
    if not case_name(request.node).startswith("clients/"):  # judged by bytes, and never run directly at the store
        made.write(getattr(request.node, "suite_outcome", "error"))


@pytest.fixture
def observe(recorder):
    return recorder.observe


@pytest.fixture
def s3(writer, recorder, plain_clients):
    client = Client(writer, recorder, plain=plain_clients[0])
    yield client
    client.close()


@pytest.fixture
def s3r(reader, recorder, plain_clients):
    """Reads: the second endpoint where there is one."""
    client = Client(reader, recorder, label="@r", plain=plain_clients[1])
    yield client
    client.close()


@pytest.fixture
def raw(writer, recorder):
    return Wire(writer, recorder)


@pytest.fixture
def rawr(reader, recorder):
    return Wire(reader, recorder, label="@r")


@pytest.fixture
def check(request):
    """check(label, actual, wanted): WANTED is a value, or a set of which any will do."""
    checker = deviations.Checker(case_name(request.node), request.config.suite_deviations)
    yield checker.check
    if getattr(request.node, "suite_outcome", "") == "passed":
        checker.refuse_unused()


@pytest.fixture
def expect(check):
    """expect(answer, 404, "NoSuchKey"): status and code of an answer, as S3 has them."""

    def compare(answer, status, code=None):
        """STATUS may be a set of verdicts, where S3 leaves it open."""
        wanted = status if isinstance(status, set) else f"{status} {code}" if code else str(status)
        check(answer.step, answer.verdict, wanted)
        return answer

    return compare


@pytest.fixture
def refused(check):
    """refused(answer): some 4xx, or the connection cut; S3 leaves open which."""

    def compare(answer):
        check(f"{answer.step} refused", answer.status == 0 or 400 <= answer.status < 500, True)
        return answer

    return compare


@pytest.fixture
def make_bucket(request, writer, recorder, plain_clients):
    """make_bucket() → the name of a new empty bucket, unrecorded; all of a case's buckets go when it ends."""
    made: list[str] = []
    client = plain_clients[0]

    def make(**arguments) -> str:
        name = endpoint.bucket_name(case_name(request.node), len(made) + 1)
        made.append(name)
        recorder.name("bucket", name)
        remove(client, name)
        client.create_bucket(Bucket=name, **arguments)
        return name

    yield make
    for name in made:
        remove(client, name)


@pytest.fixture
def bucket(make_bucket):
    return make_bucket()


def remove(client, name: str) -> None:
    """Deletes a bucket with all that is in it; one that isn't there is fine.

    Several times over: a request that its case has cut off may still be finishing at the store, and put its object
    there after the listing.
    """
    for attempt in range(10):
        try:
            return empty_and_delete(client, name)
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "BucketNotEmpty" or attempt == 9:
                raise
            time.sleep(0.2 * (attempt + 1))


def empty_and_delete(client, name: str) -> None:
    try:
        if "versioning" in endpoint.without():
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
                delete_all(client, name, [{"Key": entry["Key"]} for entry in page.get("Contents", [])])
        else:
            for page in client.get_paginator("list_object_versions").paginate(Bucket=name):
                entries = page.get("Versions", []) + page.get("DeleteMarkers", [])
                delete_all(client, name, [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries])
        for upload in client.list_multipart_uploads(Bucket=name).get("Uploads", []):
            client.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
        client.delete_bucket(Bucket=name)
    except client.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise


def delete_all(client, name: str, objects: list[dict]) -> None:
    if objects:
        client.delete_objects(Bucket=name, Delete={"Objects": objects, "Quiet": True})
