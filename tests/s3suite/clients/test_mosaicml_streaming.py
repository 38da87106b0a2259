"""mosaicml-streaming: a shuffled epoch over shards that it wrote itself, from two empty local folders."""

import hashlib

SAMPLES = 300
BYTES = sum(30_000 + number for number in range(SAMPLES))


def test_an_epoch_is_read_cold_and_hot(torch_job, writer, reader, bucket, job):
    shown = job("mosaicml-streaming", "", "an epoch of a sharded dataset")
    step = torch_job("streaming_job.py")
    shown.version = step(writer, "write", f"s3://{bucket}/epoch", str(SAMPLES))["version"]
    wanted = {str(number): hashlib.sha256(hashlib.shake_256(str(number).encode()).digest(30_000 + number)).hexdigest() for number in range(SAMPLES)}
    for name in ("cold", "hot"):
        # Random bytes do not shrink: what is fetched is as long as what was written.
        with getattr(shown, name)(BYTES):
            assert step(reader, "read", f"s3://{bucket}/epoch", f"/job/{name}")["found"] == wanted
