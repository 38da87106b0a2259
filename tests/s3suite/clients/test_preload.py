"""Preload jobs by access keys, as docs/warming.md tells to ask for them: the code of that page, run."""

import re
from pathlib import Path

import pytest
from client import boto
from data import made

PAGE = Path(__file__).parents[3] / "docs" / "warming.md"


def page_code() -> str:
    """The page's Python, up to its own job."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    return code.split("job = preload")[0]


@pytest.fixture
def preload(reader, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", reader.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", reader.secret_key)
    names = {}
    exec(page_code(), names)  # noqa: S102 - our own page
    return lambda method, path, job=None: names["preload"](method, path, job, endpoint=reader.url)


def test_a_prefix_is_warmed_with_the_keys_that_read_it(writer, reader, bucket, preload):
    for number in range(3):
        boto(writer).put_object(Bucket=bucket, Key=f"warm/{number}", Body=made(300_000, f"warm-{number}"))
    job = preload("POST", "/v1/preload", {"prefixes": [f"s3://{bucket}/warm/"], "verify": True})
    if job.get("kind") == "unavailable":
        # An endpoint without coordinators says so, and this is all that can be asked of it.
        assert "coordinators" in job["reason"], job
        return
    while job["state"] in ("queued", "running"):
        job = preload("GET", f"/v1/preload/{job['id']}?news={job['news']}&wait_ms=1000")
    assert (job["state"], job["counters"]["objects"]) == ("done", 3), job
    for number in range(3):
        answer = boto(reader).get_object(Bucket=bucket, Key=f"warm/{number}")
        assert answer["Body"].read() == made(300_000, f"warm-{number}")
        assert answer["ResponseMetadata"]["HTTPHeaders"].get("x-verbs3-cache") == "hit"
    assert preload("DELETE", f"/v1/preload/{job['id']}")["state"] == "done"


def test_what_an_operator_may_ask_alone_is_refused(preload, bucket):
    refused = preload("POST", "/v1/preload", {"prefixes": [f"s3://{bucket}/"], "action": "evict"})
    assert refused["kind"] in ("denied", "unavailable"), refused
