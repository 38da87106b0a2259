"""s3cmd: a tree synced up by parts, listed, and fetched twice."""

import pytest


@pytest.fixture
def s3cmd(run_tool):
    def call(to, *arguments: str) -> str:
        # An address as the host of all buckets: s3cmd then puts the bucket's name into the path.
        return run_tool(to, "s3cmd", "--config", "/dev/null", "--no-ssl", f"--host={to.authority}", f"--host-bucket={to.authority}",
                        f"--access_key={to.access_key}", f"--secret_key={to.secret_key}", "--region=us-east-1", "--no-progress", *arguments)

    return call


def test_a_tree_is_synced_cold_and_hot(s3cmd, writer, reader, bucket, tree, tree_bytes, tmp_path, same_tree, job):
    shown = job("s3cmd", s3cmd(writer, "--version").split()[-1], "a tree synced up and fetched")
    s3cmd(writer, "sync", "--multipart-chunk-size-mb=5", f"{tree}/", f"s3://{bucket}/tree/")
    assert len(s3cmd(reader, "ls", "--recursive", f"s3://{bucket}/tree/").splitlines()) == sum(path.is_file() for path in tree.rglob("*"))
    for folder in ("cold", "hot"):
        (tmp_path / folder).mkdir()
    with shown.cold(tree_bytes):
        s3cmd(reader, "sync", f"s3://{bucket}/tree/", f"{tmp_path}/cold/")
    with shown.hot(tree_bytes):
        s3cmd(reader, "sync", f"s3://{bucket}/tree/", f"{tmp_path}/hot/")
    same_tree(tree, tmp_path / "cold")
    same_tree(tree, tmp_path / "hot")
