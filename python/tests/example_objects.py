"""The objects that the examples of the documents read: the bucket `train`."""

import io
import json
import struct
import tarfile

BUCKET = "train"
# What they write goes here.
SCRATCH = "scratch"


def write_examples(client):
    """Writes them, and returns name to bytes."""
    made = {
        "hello.txt": b"hello",
        "shard-00.tar": tar_of({f"{at:04}.txt": b"sample %d" % at for at in range(4)}),
        "weights.safetensors": weights(),
    }
    client.create_bucket(Bucket=BUCKET)
    client.create_bucket(Bucket=SCRATCH)
    for key, body in made.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
    return made


def tar_of(members):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return target.getvalue()


def weights():
    """`bias`, four floats, as the format writes them. By hand: not every environment has the library."""
    header = json.dumps({"bias": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack("<4f", 0, 1, 2, 3)
