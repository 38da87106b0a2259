"""The file system against what was put: names, bytes, ranges, writes, pickles, forks, and libraries over it."""

import contextlib
import gc
import multiprocessing
import pickle

import fsspec
import pytest
import verbs3
import verbs3._object_upload
import verbs3.fsspec
from conftest import OTHER_KEY, OTHER_SECRET, SECRET_KEY, in_child, pattern

BUCKET = "files"
TREE = {
    "top.bin": pattern(100_000),
    "a/one": b"one",
    "a/two": b"two",
    "a/deep/three": b"three",
    "b/odd name é?&+#*.txt": b"odd",
    "empty": b"",
}


@pytest.fixture(scope="module")
def tree(plain):
    plain.create_bucket(Bucket=BUCKET)
    for key, body in TREE.items():
        plain.put_object(Bucket=BUCKET, Key=key, Body=body)
    return TREE


@pytest.fixture
def files(environment, tree):
    verbs3.fsspec.Verbs3FileSystem.clear_instance_cache()
    return fsspec.filesystem("verbs3", memory="16MiB")


@pytest.fixture
def scratch(files):
    yield f"{BUCKET}/scratch"
    if files.exists(f"{BUCKET}/scratch"):
        files.rm(f"{BUCKET}/scratch", recursive=True)


def test_the_entry_point_brings_it(files):
    assert isinstance(files, verbs3.fsspec.Verbs3FileSystem)
    with fsspec.open(f"verbs3://{BUCKET}/a/one") as file:
        assert file.read() == b"one"
    with fsspec.open(f"verbs3://{BUCKET}/a/one", "rt") as file:
        assert file.read() == "one"


def test_folders_are_listed(files):
    assert BUCKET in files.ls("", detail=False)
    names = [f"{BUCKET}/{name}" for name in ("a", "b", "empty", "top.bin")]
    for path in (BUCKET, f"{BUCKET}/", f"verbs3://{BUCKET}", f"s3://{BUCKET}/"):
        assert files.ls(path, detail=False) == names
    shown = {one["name"]: one for one in files.ls(BUCKET)}
    assert shown[f"{BUCKET}/a"]["type"] == "directory"
    assert (shown[f"{BUCKET}/top.bin"]["type"], shown[f"{BUCKET}/top.bin"]["size"]) == ("file", 100_000)
    assert [one["name"] for one in files.ls(f"{BUCKET}/empty")] == [f"{BUCKET}/empty"]
    for missing in (f"{BUCKET}/nothing", "no-such-bucket", "no-such-bucket/x"):
        with pytest.raises(FileNotFoundError):
            files.ls(missing)


def test_what_a_path_is(files):
    about = files.info(f"{BUCKET}/a/one")
    assert (about["type"], about["size"], about["name"]) == ("file", 3, f"{BUCKET}/a/one")
    assert about["ETag"] == files.ls(f"{BUCKET}/a/one")[0]["ETag"] == files.ukey(f"{BUCKET}/a/one")
    assert abs((about["LastModified"] - files.modified(f"{BUCKET}/a/two")).total_seconds()) < 3600
    assert files.info(f"{BUCKET}/a")["type"] == "directory" and files.isdir(BUCKET) and files.isdir("")
    assert files.isfile(f"{BUCKET}/a/one") and not files.isfile(f"{BUCKET}/a")
    assert files.exists(f"{BUCKET}/a") and not files.exists(f"{BUCKET}/nothing") and not files.exists("nobucket/x")
    with pytest.raises(FileNotFoundError) as caught:
        files.info(f"{BUCKET}/nothing")
    assert isinstance(caught.value.__cause__, verbs3.S3Error)
    assert files.exists_many([f"{BUCKET}/a/one", f"{BUCKET}/a"]) == [True, False]


def test_trees_are_walked_found_and_globbed(files, tree):
    every = sorted(f"{BUCKET}/{key}" for key in tree)
    assert files.find(BUCKET) == every
    assert files.find(f"{BUCKET}/a") == [name for name in every if "/a/" in name]
    assert {name: one["size"] for name, one in files.find(BUCKET, detail=True).items()} == {
        f"{BUCKET}/{key}": len(body) for key, body in tree.items()
    }
    folders = [f"{BUCKET}/{name}" for name in ("a", "a/deep", "b")]
    assert files.find(BUCKET, withdirs=True) == sorted([*every, *folders])
    assert files.find(BUCKET, maxdepth=1) == [f"{BUCKET}/empty", f"{BUCKET}/top.bin"]
    assert files.find(f"{BUCKET}/top.bin") == [f"{BUCKET}/top.bin"]
    assert files.find(f"{BUCKET}/nothing") == []
    assert files.glob(f"{BUCKET}/a/*") == [f"{BUCKET}/a/{name}" for name in ("deep", "one", "two")]
    assert files.glob(f"{BUCKET}/**/t*") == [f"{BUCKET}/{name}" for name in ("a/deep/three", "a/two", "top.bin")]
    assert files.glob(f"verbs3://{BUCKET}/a/o?e") == [f"{BUCKET}/a/one"]
    assert [(path, sorted(names)) for path, _, names in files.walk(f"{BUCKET}/a")] == [
        (f"{BUCKET}/a", ["one", "two"]),
        (f"{BUCKET}/a/deep", ["three"]),
    ]
    assert files.du(BUCKET) == sum(map(len, tree.values()))


def test_bytes_are_those_that_were_put(files, tree):
    for key, body in tree.items():
        assert files.cat_file(f"{BUCKET}/{key}") == body == files.cat(f"{BUCKET}/{key}")
        with files.open(f"{BUCKET}/{key}") as file:
            assert file.read() == body and file.size == len(body)
    found = files.cat([f"{BUCKET}/{key}" for key in tree if "*" not in key])
    assert found == {f"{BUCKET}/{key}": body for key, body in tree.items() if "*" not in key}
    assert files.cat(f"{BUCKET}/a", recursive=True) == {
        f"{BUCKET}/a/{name}": name.rpartition("/")[2].encode() for name in ("one", "two", "deep/three")
    }
    body = tree["top.bin"]
    for start, end in [(0, 10), (5, None), (None, 7), (-9, None), (-9, -3), (10, -10), (99_990, 200_000), (5, 5), (200_000, 200_001)]:
        assert files.cat_file(f"{BUCKET}/top.bin", start, end) == body[start:end], (start, end)
    assert files.head(f"{BUCKET}/top.bin", 10) == body[:10] and files.tail(f"{BUCKET}/top.bin", 10) == body[-10:]


def test_many_ranges_come_together(files, tree):
    body = tree["top.bin"]
    starts, ends = list(range(0, 50_000, 50)), list(range(10, 50_010, 50))
    found = files.cat_ranges([f"{BUCKET}/top.bin"] * len(starts), starts, ends)
    assert found == [body[start:end] for start, end in zip(starts, ends)]
    mixed = files.cat_ranges([f"{BUCKET}/{name}" for name in ("top.bin", "nothing", "empty")], [0, 0, 0], [5, 5, 5])
    assert mixed[0] == body[:5] and isinstance(mixed[1], FileNotFoundError) and mixed[2] == b""
    with pytest.raises(FileNotFoundError):
        files.cat_ranges([f"{BUCKET}/nothing"], 0, 5, on_error="raise")
    found = files.cat_ranges([f"{BUCKET}/nothing", f"{BUCKET}/a/one"], [-3, -3], [-1, -1])
    assert isinstance(found[0], FileNotFoundError) and found[1] == b"on"


def test_objects_longer_than_the_memory_are_read(environment, plain, tree):
    small = verbs3.fsspec.Verbs3FileSystem(memory="6MiB", skip_instance_cache=True)
    body = pattern(13_000_000, 7)
    plain.put_object(Bucket=BUCKET, Key="scratch/long", Body=body)
    try:
        path = f"{BUCKET}/scratch/long"
        assert small.cat_file(path) == body
        assert small.cat_ranges([path, path, path], [0, 5, -12_999_000], [None, 12_000_000, None]) == [
            body, body[5:12_000_000], body[-12_999_000:]
        ]  # fmt: skip
        assert small.cat([path, f"{BUCKET}/a/one"]) == {path: body, f"{BUCKET}/a/one": b"one"}
    finally:
        small.rm(path)


@pytest.mark.parametrize("count", [0, 1, 8 << 20, (13 << 20) - 1, 13 << 20, (16 << 20) + 1, 29_000_001])
def test_what_is_written_is_there_whole(files, plain, scratch, count):
    body, path = pattern(count, 13), f"{scratch}/written"
    with files.open(path, "wb") as file:
        for at in range(0, max(count, 1), 1_000_003):
            file.write(body[at : at + 1_000_003])
            if count:
                assert not files.exists(path)
        assert file.tell() == count
    assert plain.get_object(Bucket=BUCKET, Key="scratch/written")["Body"].read() == body
    with files.open(path) as file:
        assert file.read() == body
    with files.open(path, "wb") as file:
        file.write(body)
    assert files.cat_file(path) == body


def test_a_file_that_failed_is_never_there(files, plain, scratch):
    for count in (100, 30_000_000):
        with pytest.raises(ZeroDivisionError), files.open(f"{scratch}/half", "wb") as file:
            file.write(bytes(count))
            1 / 0  # noqa: B018
        assert not files.exists(f"{scratch}/half")
    assert "Uploads" not in plain.list_multipart_uploads(Bucket=BUCKET), "parts are not left behind"


@pytest.mark.parametrize("mode, count", [("wb", 100), ("wb", 30_000_000), ("w", 100)])
def test_what_wraps_a_file_commits_no_half_of_it(files, plain, scratch, mode, count):
    """`fsspec.open` and text files only close what they wrap, exception or not."""
    for opened in (fsspec.open(f"verbs3://{scratch}/half", mode), files.open(f"{scratch}/half", mode)):
        with pytest.warns(UserWarning, match="was not written.*ZeroDivisionError") if not isinstance(opened, verbs3._object_upload.ObjectUpload) else contextlib.nullcontext():
            with pytest.raises(ZeroDivisionError), opened as file:
                file.write(bytes(count) if mode == "wb" else "x" * count)
                1 / 0  # noqa: B018
        assert not files.exists(f"{scratch}/half")
    assert "Uploads" not in plain.list_multipart_uploads(Bucket=BUCKET)


def test_a_file_that_is_written_in_a_handler_is_there(files, scratch):
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        with fsspec.open(f"verbs3://{scratch}/report", "w") as file:
            file.write(str(error))
    assert files.cat_file(f"{scratch}/report") == b"division by zero"


def test_a_file_that_nobody_closes_is_not_there(files, plain, scratch):
    for count in (100, 30_000_000):
        file = files.open(f"{scratch}/forgotten", "wb")
        file.write(bytes(count))
        with pytest.warns(UserWarning, match="nobody has closed it"):
            del file
            gc.collect()
        assert not files.exists(f"{scratch}/forgotten")
    assert "Uploads" not in plain.list_multipart_uploads(Bucket=BUCKET)


def test_small_writes_do_not_copy_a_long_file_again_and_again(files, scratch):
    line = b"a line of a file\n"
    with files.open(f"{scratch}/lines", "wb") as file:
        for _ in range(600_000):
            file.write(line)
    assert files.info(f"{scratch}/lines")["size"] == 600_000 * len(line)
    with files.open(f"{scratch}/lines") as file:
        assert sum(one == line for one in file) == 600_000


def test_transactions_write_all_or_nothing(files, scratch):
    with files.transaction:
        for name in ("x", "y"):
            with files.open(f"{scratch}/{name}", "wb") as file:
                file.write(name.encode())
        assert not files.exists(f"{scratch}/x")
    assert files.cat([f"{scratch}/x", f"{scratch}/y"]) == {f"{scratch}/x": b"x", f"{scratch}/y": b"y"}
    with pytest.raises(ZeroDivisionError), files.transaction:
        with files.open(f"{scratch}/z", "wb") as file:
            file.write(b"z")
        1 / 0  # noqa: B018
    assert not files.exists(f"{scratch}/z")


def test_files_are_copied_moved_and_removed(files, scratch, tmp_path):
    files.pipe({f"{scratch}/{name}": name.encode() for name in ("x", "y", "d/z")})
    assert files.find(scratch) == [f"{scratch}/{name}" for name in ("d/z", "x", "y")]
    files.cp_file(f"{scratch}/x", f"{scratch}/copy")
    files.mv(f"{scratch}/y", f"{scratch}/moved")
    assert files.cat(scratch, recursive=True) == {
        f"{scratch}/{name}": body for name, body in {"copy": b"x", "d/z": b"d/z", "moved": b"y", "x": b"x"}.items()
    }
    files.get(scratch, str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/d/z").read_bytes() == b"d/z" and (tmp_path / "got/x").read_bytes() == b"x"
    files.put(str(tmp_path / "got"), f"{scratch}/put/", recursive=True)
    assert files.cat_file(f"{scratch}/put/got/d/z") == b"d/z"
    files.rm_file(f"{scratch}/x")
    assert not files.exists(f"{scratch}/x")
    files.rm(scratch, recursive=True)
    assert not files.exists(scratch)


def test_files_of_any_length_are_fetched(files, plain, scratch, tmp_path):
    body = pattern(37_000_001, 17)
    plain.put_object(Bucket=BUCKET, Key="scratch/long", Body=body)
    files.get_file(f"{scratch}/long", tmp_path / "long")
    assert (tmp_path / "long").read_bytes() == body
    files.put_file(tmp_path / "long", f"{scratch}/back")
    assert files.cat_file(f"{scratch}/back") == body
    with pytest.raises(FileNotFoundError):
        files.get_file(f"{scratch}/nothing", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_new_object_takes_no_others_place(files, scratch, tmp_path):
    files.pipe_file(f"{scratch}/new", b"first", mode="create")
    with pytest.raises(FileExistsError):
        files.pipe_file(f"{scratch}/new", b"second", mode="create")
    with pytest.raises(FileExistsError), files.open(f"{scratch}/new", "xb") as file:
        file.write(b"third")
    (tmp_path / "new").write_bytes(b"fourth")
    with pytest.raises(FileExistsError):
        files.put_file(tmp_path / "new", f"{scratch}/new", mode="create")
    files.put_file(tmp_path / "new", f"{scratch}/newer", mode="create")
    assert files.cat_file(f"{scratch}/newer") == b"fourth"
    assert files.cat_file(f"{scratch}/new") == b"first"
    with pytest.raises(NotImplementedError, match="'rb', 'wb' or 'xb'"):
        files.open(f"{scratch}/new", "ab")


def test_a_tree_is_removed_with_what_stands_for_its_folders(files, plain, scratch):
    plain.put_object(Bucket=BUCKET, Key="scratch/tree/", Body=b"")
    plain.put_object(Bucket=BUCKET, Key="scratch/tree/sub/", Body=b"")
    files.pipe({f"{scratch}/tree/a": b"a", f"{scratch}/tree/sub/b": b"b", f"{scratch}/tree-beside": b"c"})
    assert files.ls(f"{scratch}/tree", detail=False) == [f"{scratch}/tree/a", f"{scratch}/tree/sub"]
    files.rm(f"{scratch}/tree", recursive=True)
    left = plain.list_objects_v2(Bucket=BUCKET, Prefix="scratch/")["Contents"]
    assert [one["Key"] for one in left] == ["scratch/tree-beside"]
    with pytest.raises(FileNotFoundError):
        files.rm(f"{scratch}/tree", recursive=True)


def test_more_objects_than_one_request_removes(files, plain, scratch):
    for at in range(1005):
        plain.put_object(Bucket=BUCKET, Key=f"scratch/many/{at}", Body=b"")
    assert len(files.find(f"{scratch}/many")) == 1005
    files.rm(f"{scratch}/many", recursive=True)
    assert not files.exists(f"{scratch}/many")


def test_a_child_that_ends_leaves_its_parents_upload_alone(files, scratch):
    body = pattern(30_000_000, 3)
    with files.open(f"{scratch}/forked", "wb") as file:
        file.write(body[:20_000_000])

        def end():
            nonlocal file
            file.close()
            del file
            gc.collect()
            return 7

        assert in_child(end) == 7
        file.write(body[20_000_000:])
    assert files.cat_file(f"{scratch}/forked") == body


def test_buckets_are_made_and_removed(files):
    files.mkdir("made-by-fsspec")
    files.makedirs("made-by-fsspec/any/folder", exist_ok=True)
    assert files.isdir("made-by-fsspec") and files.ls("made-by-fsspec") == []
    files.rmdir("made-by-fsspec")
    assert not files.exists("made-by-fsspec")
    with pytest.raises(OSError, match="BucketNotEmpty"):
        files.rmdir(BUCKET)


def test_rights_are_those_of_the_key(environment, tree, tmp_path):
    other = verbs3.fsspec.Verbs3FileSystem(key=OTHER_KEY, secret=OTHER_SECRET, memory="4MiB", skip_instance_cache=True)
    local = tmp_path / "local"
    local.write_bytes(b"x")
    for refused in (lambda: other.put_file(local, f"{BUCKET}/x"), lambda: other.cat_file(f"{BUCKET}/a/one"), lambda: other.ls(BUCKET), lambda: other.pipe_file(f"{BUCKET}/x", b"")):
        with pytest.raises(PermissionError):
            refused()
    with pytest.raises(IsADirectoryError):
        other.cat_file(BUCKET)


def test_it_pickles_without_found_keys_and_reads_elsewhere(files, tree):
    files.cat_file(f"{BUCKET}/a/one")
    pickled = pickle.dumps(files)
    assert SECRET_KEY.encode() not in pickled
    assert pickle.loads(pickled).cat_file(f"{BUCKET}/a/one") == b"one"
    mapper = pickle.loads(pickle.dumps(files.get_mapper(f"{BUCKET}/a")))
    assert dict(mapper) == {"one": b"one", "two": b"two", "deep/three": b"three"}


def read_one(files):
    return files.cat_file(f"{BUCKET}/top.bin"), files.ls(f"{BUCKET}/a", detail=False)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_read(files, tree, method):
    files.cat_file(f"{BUCKET}/a/one"), files.ls(BUCKET)
    with multiprocessing.get_context(method).Pool(3) as pool:
        for body, names in pool.map(read_one, [files] * 12):
            assert body == tree["top.bin"] and names == [f"{BUCKET}/a/{name}" for name in ("deep", "one", "two")]
    assert read_one(files)[0] == tree["top.bin"]


def test_a_child_writes_on_connections_of_its_own(files, scratch):
    files.pipe_file(f"{scratch}/parent", b"p")

    def write():
        files.pipe_file(f"{scratch}/child", b"c" * 100_000)
        return 7 if files.cat_file(f"{scratch}/child") == b"c" * 100_000 else 1

    for _ in range(3):
        assert in_child(write) == 7
        files.pipe_file(f"{scratch}/parent", b"p")
    assert files.cat_file(f"{scratch}/child") == b"c" * 100_000


def test_urls_are_signed(files):
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    assert opener.open(files.sign(f"{BUCKET}/a/one")).read() == b"one"


def test_pandas_reads_and_writes(files, scratch):
    import pandas

    frame = pandas.DataFrame({"number": range(1000), "text": [str(at) for at in range(1000)]})
    for kind in ("csv", "parquet"):
        url = f"verbs3://{scratch}/frame.{kind}"
        if kind == "csv":
            frame.to_csv(url, index=False)
            again = pandas.read_csv(url, dtype={"text": str})
        else:
            frame.to_parquet(url)
            again = pandas.read_parquet(url)
        assert again["number"].tolist() == list(range(1000)) and again["text"].tolist() == frame["text"].tolist()


def test_zarr_reads_and_writes(files, scratch):
    import numpy
    import zarr

    made = numpy.arange(60_000, dtype="int32").reshape(200, 300)
    array = zarr.create_array(f"verbs3://{scratch}/array.zarr", shape=made.shape, chunks=(50, 70), dtype=made.dtype)
    array[:] = made
    again = zarr.open_array(f"verbs3://{scratch}/array.zarr", mode="r")
    assert (again[:] == made).all() and (again[17:60, 5:299:3] == made[17:60, 5:299:3]).all()


def test_without_a_socket_a_read_says_what_to_do(environment, tree):
    lost = verbs3.fsspec.Verbs3FileSystem(socket="/nowhere/gateway.sock", skip_instance_cache=True)
    with pytest.raises(verbs3.LendingUnavailable, match="gateway.lending.socket"):
        lost.cat_file(f"{BUCKET}/a/one")
