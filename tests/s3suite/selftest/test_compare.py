"""The comparison itself, without an endpoint: it must see what differs, and see when a listed difference is gone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from record import Recorder

SUITE = Path(__file__).parent.parent
LINE = {"case": "test_x.py::test_a[b]", "step": "01 GetObject", "status": 200, "headers": {"etag": "1"}, "body": {"bytes": 1}}
OUTCOME = {"case": "test_x.py::test_a[b]", "step": "outcome", "value": "passed"}


@pytest.fixture
def compare(tmp_path):
    def run(direct: list[dict], through: list[dict], allowed: str = "") -> tuple[int, str]:
        for name, lines in (("a", direct), ("b", through)):
            (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        (tmp_path / "allowed").write_text(allowed)
        done = subprocess.run([sys.executable, SUITE / "compare.py", tmp_path / "a", tmp_path / "b", "--allowed", tmp_path / "allowed", "--verbose"],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def entry(**fields) -> str:
    return "[[allowed]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in ({"reason": "because"} | fields).items())


def test_equal_records_are_equal(compare):
    assert compare([LINE, OUTCOME], [LINE, OUTCOME])[0] == 0


@pytest.mark.parametrize("change", [{"status": 206}, {"headers": {}}, {"headers": {"etag": "2"}}, {"headers": {"etag": "1", "x-new": "1"}}, {"body": None}])
def test_any_change_is_a_difference(compare, change):
    code, text = compare([LINE, OUTCOME], [LINE | change, OUTCOME])
    assert code == 1 and "DIFFERS" in text


@pytest.mark.parametrize("through", [[], [OUTCOME], [LINE, LINE | {"step": "02 More"}, OUTCOME], [LINE, OUTCOME | {"value": "failed"}]])
def test_a_missing_or_additional_step_is_a_difference(compare, through):
    assert compare([LINE, OUTCOME], through)[0] == 1


def test_a_listed_difference_is_allowed_with_literal_brackets(compare):
    allowed = entry(case="test_x.py::test_a[b]", path="headers.etag", direct='"1"', through='"2"')
    code, text = compare([LINE, OUTCOME], [LINE | {"headers": {"etag": "2"}}, OUTCOME], allowed)
    assert code == 0 and "because" in text


def test_a_listed_difference_of_another_value_is_not_allowed(compare):
    allowed = entry(path="headers.etag", through='"2"')
    assert compare([LINE, OUTCOME], [LINE | {"headers": {"etag": "3"}}, OUTCOME], allowed)[0] == 1


def test_a_listed_difference_that_is_gone_is_an_error(compare):
    code, text = compare([LINE, OUTCOME], [LINE, OUTCOME], entry(path="headers.etag"))
    assert code == 1 and "STALE" in text


def test_a_listed_number_of_cases_is_held(compare):
    through = [LINE | {"status": 500}, OUTCOME]
    assert compare([LINE, OUTCOME], through, entry(path="status", cases=1))[0] == 0
    assert compare([LINE, OUTCOME], through, entry(path="status", cases=2))[0] == 1


def test_an_entry_without_a_reason_is_refused(compare):
    assert compare([LINE, OUTCOME], [LINE, OUTCOME], '[[allowed]]\npath = "status"\n')[0] == 1


def test_what_was_not_asked_at_the_store_is_not_compared(compare):
    code, text = compare([OUTCOME | {"value": "not asked: the store ends"}, LINE | {"case": "other"}], [LINE, OUTCOME, LINE | {"case": "other"}])
    assert code == 0 and "the store ends" in text


def test_ids_and_dates_are_taken_out_and_formats_stay():
    def record(bucket: str, version: str, date: str) -> dict:
        recorder = Recorder("case", ["http://10.0.0.1:80"])
        recorder.name("bucket", bucket)
        body = f"<R><Name>{bucket}</Name><VersionId>{version}</VersionId><At>{date}</At><L>http://10.0.0.1:80/{bucket}</L><RequestId>{version}</RequestId></R>"
        recorder.answer("Op", 200, [("Content-Type", "application/xml"), ("x-amz-version-id", version), ("x-amz-request-id", version)], body.encode())
        return recorder.lines[0]

    one = record("bucket-one", "v1abc", "2026-01-02T03:04:05.678Z")
    assert one == record("bucket-two", "v2xyz", "2027-11-12T13:14:15.999Z")
    assert one != record("bucket-two", "v2xyz", "2027-11-12T13:14:15Z")
    assert "v1abc" not in json.dumps(one) and "bucket-one" not in json.dumps(one)
