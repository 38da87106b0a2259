"""What a comparison comes to in short."""

import results


def line(status: int) -> dict:
    return {"status": status, "headers": {}, "body": None, "code": None}


def test_operations_are_told_from_raw_requests_and_remarks():
    assert [results.operation(step) for step in ("01 GetObject", "12 ListParts@r", "02 GET raw", "03 GET raw@r", "04 a remark", "05 GET", "outcome")] == [
        "GetObject", "ListParts", None, None, None, None, None]


def test_an_operation_is_the_same_where_every_answer_is():
    direct = {"test_x.py::a": {"01 GetObject": line(200), "02 PutObject": line(200)}, "test_x.py::b": {"01 GetObject@r": line(404)}}
    through = {"test_x.py::a": {"01 GetObject": line(200), "02 PutObject": line(201)}, "test_x.py::b": {"01 GetObject@r": line(404)}}
    found = results.results(direct, through)
    assert found["GetObject"] == [] and len(found["PutObject"]) == 1
    assert results.verdicts(found) == ["GetObject same", "PutObject differs"]
    assert results.verdicts({"GetObject": "same", "PutObject": ["whatever"]}) == results.verdicts(found)
    assert '\nGetObject = "same"\n' in results.written(found)
