"""s3fs, what pandas, dask and datasets read S3 with: a tree put, found and read through its file objects."""

import pytest
from conftest import JOBS, digests, prepared


@pytest.fixture
def s3fs(run_job):
    def call(to, *arguments: str) -> dict:
        return run_job(to, [f"{prepared('venv.sh', 's3fs')}/bin/python"], str(JOBS / "s3fs_job.py"), *arguments)

    return call


def test_a_dataset_is_read_cold_and_hot(s3fs, writer, reader, bucket, tree, tree_bytes, job):
    shown = job("s3fs", "", "a tree of files put and read")
    shown.version = s3fs(writer, bucket, "put", str(tree))["version"]
    with shown.cold(tree_bytes):
        assert s3fs(reader, bucket, "read")["found"] == digests(tree)
    with shown.hot(tree_bytes):
        assert s3fs(reader, bucket, "read")["found"] == digests(tree)
