"""s3fs-fuse: a bucket as a folder: ls, cp and cmp on a mount, and on one that is mounted anew."""

import os
import subprocess
from contextlib import contextmanager

import pytest
from conftest import digests, not_proven


@pytest.fixture
def mounted(tmp_path):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        not_proven("s3fs-fuse: this machine has no /dev/fuse")
    mounts = []

    @contextmanager
    def mount(to, bucket: str, name: str):
        folder, password = tmp_path / name, tmp_path / "password"
        folder.mkdir()
        password.touch(mode=0o600)
        password.write_text(f"{to.access_key}:{to.secret_key}\n")
        # One more way than the kernel's pages to keep bytes would make "hot" mean something else: no local cache.
        options = f"url={to.url},use_path_request_style,passwd_file={password},endpoint=us-east-1,multipart_size=5,enable_content_md5"
        done = subprocess.run(["s3fs", bucket, folder, "-o", options], capture_output=True, text=True, timeout=60)
        if done.returncode != 0 and ("fuse: mount failed" in done.stderr or "Operation not permitted" in done.stderr):
            not_proven(f"s3fs-fuse: this machine does not let mount: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        mounts.append(folder)
        yield folder
        unmount(folder)
        mounts.remove(folder)

    def unmount(folder) -> None:
        done = subprocess.run(["fusermount", "-u", folder], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    yield mount
    for folder in mounts:
        unmount(folder)


def test_a_mount_is_read_cold_and_hot(mounted, writer, reader, bucket, tree, tree_bytes, tmp_path, job):
    version = subprocess.run(["s3fs", "--version"], capture_output=True, text=True, check=True).stdout.split("V")[1].split()[0]
    shown = job("s3fs-fuse", version, "a mount: cp, ls, cmp")
    with mounted(writer, bucket, "out") as folder:
        subprocess.run(["cp", "-r", tree, folder / "tree"], check=True, timeout=100)
    for name in ("cold", "hot"):
        with mounted(reader, bucket, name) as folder, getattr(shown, name)(tree_bytes):
            listing = subprocess.run(["ls", folder / "tree"], capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")
            assert sorted(filter(None, listing)) == sorted(os.listdir(tree))
            subprocess.run(["cmp", folder / "tree/large.bin", tree / "large.bin"], check=True, timeout=100)
            assert digests(folder / "tree") == digests(tree)
