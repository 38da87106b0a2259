"""rclone: a tree synced up, listed, and synced down twice."""

import pytest


@pytest.fixture
def rclone(run_tool):
    def call(to, *arguments: str) -> str:
        # The machine may name a bundle of certificates, which rclone then wants to be there.
        return run_tool(to, "rclone", "--config", "", *arguments, RCLONE_CONFIG_STORE_TYPE="s3", RCLONE_CONFIG_STORE_PROVIDER="Ceph",
                        RCLONE_CONFIG_STORE_ENV_AUTH="true", RCLONE_CONFIG_STORE_ENDPOINT=to.url, RCLONE_CONFIG_STORE_FORCE_PATH_STYLE="true",
                        RCLONE_S3_CHUNK_SIZE="5Mi", RCLONE_S3_UPLOAD_CUTOFF="8Mi", RCLONE_CONFIG_STORE_REGION="us-east-1")

    return call


def test_a_tree_is_synced_cold_and_hot(rclone, writer, reader, bucket, tree, tree_bytes, tmp_path, same_tree, job):
    version = rclone(writer, "version").splitlines()[0].split("v")[-1].removesuffix("-DEV")
    shown = job("rclone", version, "a tree synced up and down")
    rclone(writer, "sync", str(tree), f"store:{bucket}/tree")
    assert len(rclone(reader, "lsf", "--recursive", "--files-only", f"store:{bucket}/tree").splitlines()) == len(list(p for p in tree.rglob("*") if p.is_file()))
    with shown.cold(tree_bytes):
        rclone(reader, "sync", f"store:{bucket}/tree", str(tmp_path / "cold"))
    with shown.hot(tree_bytes):
        rclone(reader, "sync", f"store:{bucket}/tree", str(tmp_path / "hot"))
    same_tree(tree, tmp_path / "cold")
    same_tree(tree, tmp_path / "hot")


def test_sync_removes_what_is_gone(rclone, writer, reader, bucket, tmp_path, same_tree):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("stays", "goes"):
        (source / name).write_text(name)
    rclone(writer, "sync", str(source), f"store:{bucket}")
    rclone(reader, "sync", f"store:{bucket}", str(tmp_path / "down"))
    (source / "goes").unlink()
    (source / "stays").write_text("another text")
    rclone(writer, "sync", str(source), f"store:{bucket}")
    rclone(reader, "sync", f"store:{bucket}", str(tmp_path / "down"))
    same_tree(source, tmp_path / "down")
