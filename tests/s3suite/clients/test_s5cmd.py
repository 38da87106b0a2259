"""s5cmd, the parallel client: many files at once, up, down, listed and removed."""

import json

import pytest
from data import MIB, made


@pytest.fixture
def s5cmd(run_tool):
    def call(to, *arguments: str, ok: bool = True) -> str:
        return run_tool(to, "s5cmd", "--endpoint-url", to.url, "--numworkers", "8", *arguments, ok=ok)

    return call


def test_a_tree_goes_up_and_comes_down(s5cmd, writer, reader, bucket, tree, tmp_path, same_tree):
    s5cmd(writer, "cp", f"{tree}/", f"s3://{bucket}/tree/")
    s5cmd(reader, "cp", f"s3://{bucket}/tree/*", str(tmp_path / "down") + "/")
    same_tree(tree, tmp_path / "down")


def test_many_small_files(s5cmd, writer, reader, bucket, tmp_path, same_tree):
    source = tmp_path / "many"
    source.mkdir()
    for number in range(200):
        (source / f"file-{number:03d}").write_bytes(made(100 + number, str(number)))
    s5cmd(writer, "cp", f"{source}/", f"s3://{bucket}/")
    lines = s5cmd(reader, "--json", "ls", f"s3://{bucket}/*").splitlines()
    assert sorted(json.loads(line)["size"] for line in lines) == list(range(100, 300))
    s5cmd(reader, "cp", f"s3://{bucket}/*", str(tmp_path / "down") + "/")
    same_tree(source, tmp_path / "down")
    s5cmd(writer, "rm", f"s3://{bucket}/*")
    s5cmd(reader, "ls", f"s3://{bucket}/*", ok=False)


def test_sync_carries_changes(s5cmd, writer, reader, bucket, tmp_path, same_tree):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"first")
    s5cmd(writer, "sync", f"{source}/", f"s3://{bucket}/")
    (source / "a").write_bytes(b"second, longer")
    (source / "b").write_bytes(b"new")
    s5cmd(writer, "sync", f"{source}/", f"s3://{bucket}/")
    s5cmd(reader, "sync", f"s3://{bucket}/*", str(tmp_path / "down") + "/")
    same_tree(source, tmp_path / "down")


def test_a_large_file_in_parallel_parts(s5cmd, writer, reader, bucket, tmp_path):
    data = made(40 * MIB + 5, "large")
    (tmp_path / "large").write_bytes(data)
    s5cmd(writer, "cp", "--concurrency", "4", "--part-size", "6", "large", f"s3://{bucket}/large")
    s5cmd(reader, "cp", "--concurrency", "4", "--part-size", "5", f"s3://{bucket}/large", "down")
    assert (tmp_path / "down").read_bytes() == data


def test_cat_and_copy_inside(s5cmd, writer, reader, bucket, tmp_path):
    (tmp_path / "file").write_bytes(b"hello")
    s5cmd(writer, "cp", "file", f"s3://{bucket}/file")
    s5cmd(writer, "cp", f"s3://{bucket}/file", f"s3://{bucket}/copy")
    assert s5cmd(reader, "cat", f"s3://{bucket}/copy") == "hello"


def test_a_tree_is_fetched_cold_and_hot(s5cmd, writer, reader, bucket, tree, tree_bytes, tmp_path, same_tree, job):
    shown = job("s5cmd", s5cmd(writer, "version").split("-")[0].strip().removeprefix("v"), "a tree copied up and down")
    s5cmd(writer, "cp", "--part-size", "5", f"{tree}/", f"s3://{bucket}/tree/")
    for name in ("cold", "hot"):
        with getattr(shown, name)(tree_bytes):
            s5cmd(reader, "cp", f"s3://{bucket}/tree/*", str(tmp_path / name) + "/")
        same_tree(tree, tmp_path / name)
