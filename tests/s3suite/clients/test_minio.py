"""minio-py: a folder of objects put and read back, one of them by parts."""

import io

import minio
import pytest
from data import MIB, PART_BYTES, made
from endpoint import REGION

OBJECTS = {"set/small": 1000, "set/page": 262_145, "set/parts": 2 * PART_BYTES + 77, "set/block": 4 * MIB}


@pytest.fixture
def client():
    def make(to) -> minio.Minio:
        return minio.Minio(to.authority, access_key=to.access_key, secret_key=to.secret_key, secure=False, region=REGION)

    return make


def test_a_folder_is_read_cold_and_hot(client, writer, reader, bucket, job):
    shown = job("minio-py", minio.__version__, "a folder of objects, one by parts")
    for name, size in OBJECTS.items():
        client(writer).put_object(bucket, name, io.BytesIO(made(size, name)), size, part_size=PART_BYTES)

    def read() -> dict[str, bytes]:
        found = {}
        for entry in client(reader).list_objects(bucket, prefix="set/", recursive=True):
            answer = client(reader).get_object(bucket, entry.object_name)
            found[entry.object_name] = answer.read()
            answer.close()
        return found

    wanted = {name: made(size, name) for name, size in OBJECTS.items()}
    with shown.cold(sum(OBJECTS.values())):
        assert read() == wanted
    with shown.hot(sum(OBJECTS.values())):
        assert read() == wanted
    for name in OBJECTS:
        client(writer).remove_object(bucket, name)
    assert list(client(reader).list_objects(bucket, recursive=True)) == []
