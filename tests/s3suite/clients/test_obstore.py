"""obstore (the Rust crate object_store): streams written by parts, listings, ranges in one call, whole reads."""

import obstore
from data import MIB, PART_BYTES, made
from endpoint import REGION
from obstore.store import S3Store

OBJECTS = {"set/small": 1000, "set/page": 262_145, "set/parts": 3 * PART_BYTES + 1}


def store(to, bucket: str) -> S3Store:
    return S3Store(bucket, endpoint=to.url, access_key_id=to.access_key, secret_access_key=to.secret_key, region=REGION,
                   virtual_hosted_style_request=False, client_options={"allow_http": True})


def test_objects_and_ranges_cold_and_hot(writer, reader, bucket, job):
    shown = job("obstore", obstore.__version__, "objects whole and by ranges")
    out, into = store(writer, bucket), store(reader, bucket)
    for name, size in OBJECTS.items():
        obstore.put(out, name, made(size, name), chunk_size=PART_BYTES, use_multipart=size > MIB)
    assert sorted(entry["path"] for page in obstore.list(into, prefix="set") for entry in page) == sorted(OBJECTS)

    def read() -> None:
        for name, size in OBJECTS.items():
            assert bytes(obstore.get(into, name).bytes()) == made(size, name)
        whole = made(OBJECTS["set/parts"], "set/parts")
        starts = [0, 99, 262_143, 5_000_000, len(whole) - 300]
        for start, piece in zip(starts, obstore.get_ranges(into, "set/parts", starts=starts, lengths=[300] * len(starts))):
            assert bytes(piece) == whole[start:start + 300]

    with shown.cold(sum(OBJECTS.values())):
        read()
    with shown.hot(sum(OBJECTS.values())):
        read()
