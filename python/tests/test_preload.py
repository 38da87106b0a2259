"""Jobs that warm the cache, begun with S3 keys, and what is told of them."""

from datetime import datetime, timedelta, timezone

import pytest
import verbs3
from conftest import OTHER_KEY, OTHER_SECRET

BUCKET = "cold"


@pytest.fixture(scope="module")
def cold(plain):
    plain.create_bucket(Bucket=BUCKET)
    bodies = {f"set/{at:03}": bytes([at]) * 50_000 for at in range(40)}
    for key, body in bodies.items():
        plain.put_object(Bucket=BUCKET, Key=key, Body=body)
    return bodies


def test_what_was_loaded_is_a_hit(environment, cold, reader):
    job = verbs3.preload(f"s3://{BUCKET}/set/", deadline=timedelta(minutes=5))
    assert (job.state, job.objects, job.bytes_wanted) == ("done", 40, 40 * 50_000)
    assert job.bytes_there >= job.bytes_wanted and job.is_over
    for index, view in reader.read_many([(BUCKET, key) for key in cold]):
        assert view == list(cold.values())[index]
    assert reader.hit_rate().rate == 1.0
    assert verbs3.preload_job(job.id).state == "done"


def test_a_job_need_not_be_waited_for(environment, cold):
    deadline = datetime.now(timezone.utc) + timedelta(minutes=5)
    job = verbs3.preload([f"s3://{BUCKET}/set/00", f"s3://{BUCKET}/set/01"], deadline=deadline, wait=False)
    while not (job := verbs3.preload_job(job.id)).is_over:
        pass
    assert (job.state, job.objects) == ("done", 20)
    assert job.document["spec"]["deadline"] == deadline.isoformat(timespec="seconds").replace("+00:00", "Z")


def test_a_bar_shows_its_progress(environment, cold, capsys):
    verbs3.preload(f"s3://{BUCKET}/set/", progress=True)
    shown = capsys.readouterr().err
    assert "preload" in shown and "done, 40 objects" in shown
    verbs3.preload(f"s3://{BUCKET}/set/", progress=False)
    verbs3.preload(f"s3://{BUCKET}/set/")
    assert capsys.readouterr().err == "", "no terminal, no bar"


def test_what_is_missing_is_told(environment, cold):
    with pytest.raises(verbs3.PreloadError, match="nothing-there") as caught:
        verbs3.preload([], paths=[f"s3://{BUCKET}/nothing-there"])
    assert caught.value.job.state == "incomplete"
    assert caught.value.job.document["failures"]["first"]


def test_refusals_say_why(environment, cold, gateway):
    with pytest.raises(verbs3.PreloadError, match="warm"):
        verbs3.preload(f"s3://{BUCKET}/set/", access_key=OTHER_KEY, secret_key=OTHER_SECRET)
    with pytest.raises(verbs3.PreloadError, match="403"):
        verbs3.preload(f"s3://{BUCKET}/", access_key=OTHER_KEY, secret_key="a-wrong-secret-0123456789")
    with pytest.raises(verbs3.PreloadError, match="400"):
        verbs3.preload(f"s3://{BUCKET}/", no_such_field=1)
    for wrong in (-5, 0, datetime(2020, 1, 1)):
        with pytest.raises(ValueError, match="deadline"):
            verbs3.preload(f"s3://{BUCKET}/", deadline=wrong)
    with pytest.raises(ValueError, match="s3://BUCKET/KEY"):
        verbs3.preload("set/")
    with pytest.raises(ValueError, match="no endpoint"):
        verbs3.preload("s3://x/", endpoint_url="gateway:9000")


def test_a_gateway_that_is_not_there_is_named(environment, monkeypatch):
    from verbs3 import _preload

    monkeypatch.setattr(_preload, "_TRIES_MAX", 2)
    with pytest.raises(verbs3.PreloadError, match="nobody answers at http://127.0.0.1:1"):
        verbs3.preload("s3://x/", endpoint_url="http://127.0.0.1:1")
