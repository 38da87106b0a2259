"""The AWS command line client: trees up and down, sync, multipart, listings, presigned URLs."""

import json

import pytest
import requests
from data import MIB, made


@pytest.fixture
def aws(run_tool):
    def call(to, *arguments: str, ok: bool = True) -> str:
        return run_tool(to, "aws", "--endpoint-url", to.url, *arguments, ok=ok)

    return call


def test_a_tree_goes_up_and_comes_down(aws, writer, reader, bucket, tree, tmp_path, same_tree):
    aws(writer, "s3", "cp", "--recursive", "--quiet", str(tree), f"s3://{bucket}/tree")
    aws(reader, "s3", "cp", "--recursive", "--quiet", f"s3://{bucket}/tree", str(tmp_path / "down"))
    same_tree(tree, tmp_path / "down")


def test_sync_carries_changes_and_deletions(aws, writer, reader, bucket, tmp_path, same_tree):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("stays", "changes", "goes"):
        (source / name).write_bytes(made(3000, name))
    aws(writer, "s3", "sync", "--quiet", str(source), f"s3://{bucket}")
    aws(reader, "s3", "sync", "--quiet", f"s3://{bucket}", str(tmp_path / "down"))
    same_tree(source, tmp_path / "down")
    (source / "changes").write_bytes(made(4000, "changed"))
    (source / "goes").unlink()
    (source / "comes").write_bytes(b"new")
    aws(writer, "s3", "sync", "--delete", "--quiet", str(source), f"s3://{bucket}")
    aws(reader, "s3", "sync", "--delete", "--quiet", f"s3://{bucket}", str(tmp_path / "down"))
    same_tree(source, tmp_path / "down")


def test_list_move_and_remove(aws, writer, reader, bucket, tmp_path):
    (tmp_path / "file").write_bytes(b"moved")
    aws(writer, "s3", "cp", "--quiet", "file", f"s3://{bucket}/dir/one")
    aws(writer, "s3", "mv", "--quiet", f"s3://{bucket}/dir/one", f"s3://{bucket}/dir/two")
    listing = aws(reader, "s3", "ls", "--recursive", f"s3://{bucket}")
    assert [line.split()[-1] for line in listing.splitlines()] == ["dir/two"]
    assert aws(reader, "s3", "cp", f"s3://{bucket}/dir/two", "-") == "moved"
    aws(writer, "s3", "rm", "--recursive", "--quiet", f"s3://{bucket}")
    assert aws(reader, "s3", "ls", "--recursive", f"s3://{bucket}") == ""


def test_a_large_copy_goes_by_parts(aws, writer, reader, bucket, tmp_path):
    data = made(20 * MIB, "large copy")
    (tmp_path / "large").write_bytes(data)
    aws(writer, "s3", "cp", "--quiet", "large", f"s3://{bucket}/large")
    aws(writer, "s3", "cp", "--quiet", f"s3://{bucket}/large", f"s3://{bucket}/copy")
    aws(reader, "s3", "cp", "--quiet", f"s3://{bucket}/copy", "down")
    assert (tmp_path / "down").read_bytes() == data


def test_a_presigned_url_is_good_without_the_client(aws, reader, writer, bucket, tmp_path):
    (tmp_path / "file").write_bytes(b"for everyone with the link")
    aws(writer, "s3", "cp", "--quiet", "file", f"s3://{bucket}/file")
    url = aws(reader, "s3", "presign", f"s3://{bucket}/file", "--expires-in", "60").strip()
    assert requests.get(url, timeout=30).content == b"for everyone with the link"


def test_the_low_level_commands(aws, writer, reader, bucket, tmp_path):
    (tmp_path / "file").write_bytes(made(10_000))
    aws(writer, "s3api", "put-object", "--bucket", bucket, "--key", "file", "--body", "file", "--metadata", "colour=blue")
    head = json.loads(aws(reader, "s3api", "head-object", "--bucket", bucket, "--key", "file"))
    assert (head["ContentLength"], head["Metadata"]) == (10_000, {"colour": "blue"})
    aws(reader, "s3api", "get-object", "--bucket", bucket, "--key", "file", "--range", "bytes=100-199", "part")
    assert (tmp_path / "part").read_bytes() == made(10_000)[100:200]


def test_a_missing_key_fails_and_says_so(aws, reader, bucket):
    aws(reader, "s3", "cp", f"s3://{bucket}/missing", "-", ok=False)


def test_a_tree_is_synced_cold_and_hot(aws, writer, reader, bucket, tree, tree_bytes, tmp_path, same_tree, job):
    shown = job("awscli", aws(writer, "--version").split()[0].split("/")[1], "a tree synced up and down")
    aws(writer, "s3", "sync", "--quiet", str(tree), f"s3://{bucket}/tree")
    for name in ("cold", "hot"):
        with getattr(shown, name)(tree_bytes):
            aws(reader, "s3", "sync", "--quiet", f"s3://{bucket}/tree", str(tmp_path / name))
        same_tree(tree, tmp_path / name)
