"""aws-sdk-js v3 on Node.js: a tree uploaded by lib-storage in parts, listed by pages, streamed back."""

import subprocess

import pytest
from conftest import TESTBED, digests, not_proven


@pytest.fixture
def node(run_job):
    done = subprocess.run([TESTBED / "node.sh"], capture_output=True, text=True)
    if done.returncode == 3:
        not_proven(f"aws-sdk-js: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr

    def call(to, *arguments: str) -> dict:
        return run_job(to, ["node"], str(TESTBED.parent / "s3suite/clients/node/job.cjs"), *arguments, NODE_ROOT=done.stdout.strip())

    return call


def test_a_tree_is_streamed_cold_and_hot(node, writer, reader, bucket, tree, tree_bytes, job):
    shown = job("aws-sdk-js", "", "a tree uploaded and streamed")
    shown.version = node(writer, "put", bucket, str(tree))["version"]
    with shown.cold(tree_bytes):
        assert node(reader, "read", bucket)["found"] == digests(tree)
    with shown.hot(tree_bytes):
        assert node(reader, "read", bucket)["found"] == digests(tree)
