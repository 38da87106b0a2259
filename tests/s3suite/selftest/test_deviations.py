"""The expected deviations themselves, without an endpoint: whose entry counts where, and what passes under it."""

import pytest
from deviations import Checker, Deviation, Known, load

CASE = "test_x.py::test_a"


def checker(monkeypatch, via: str, of_gateway: bool) -> Checker:
    monkeypatch.setenv("S3_VIA", via)
    monkeypatch.delenv("S3_LEARN", raising=False)
    return Checker(CASE, Known([Deviation(CASE, "status", "206", "because", of_gateway)], []))


@pytest.mark.parametrize("via,of_gateway,value,passes", [
    ("", False, 206, True), ("", False, 200, False), ("", False, 500, False),
    ("gateway", False, 206, True), ("gateway", False, 200, True), ("gateway", False, 500, False),
    ("gateway", True, 206, True), ("gateway", True, 200, False), ("gateway", True, 500, False)])
def test_s3s_own_value_passes_only_in_place_of_the_stores(monkeypatch, via, of_gateway, value, passes):
    held = checker(monkeypatch, via, of_gateway)
    if passes:
        held.check("status", value, 200)
    else:
        with pytest.raises(AssertionError):
            held.check("status", value, 200)


def test_the_gateways_entries_stand_in_for_the_stores(monkeypatch):
    monkeypatch.setenv("S3_STORE", "rgw")
    monkeypatch.delenv("S3_VIA", raising=False)
    direct = load().deviations
    monkeypatch.setenv("S3_VIA", "gateway")
    through = load().deviations
    keys = [(entry.case, entry.check) for entry in through]
    assert len(keys) == len(set(keys)), "two entries for one check"
    assert any(entry.of_gateway for entry in through) and not any(entry.of_gateway for entry in direct)
    assert {(entry.case, entry.check) for entry in direct} <= set(keys)
