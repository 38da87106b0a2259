"""pyarrow over its own S3 client (the C++ SDK): Parquet written, scanned with projections and filters, overwritten."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from data import made
from endpoint import REGION
from pyarrow import fs

ROWS = 200_000


def filesystem(to) -> fs.S3FileSystem:
    return fs.S3FileSystem(endpoint_override=to.authority, scheme="http", access_key=to.access_key, secret_key=to.secret_key, region=REGION)


@pytest.fixture
def out(writer):
    return filesystem(writer)


@pytest.fixture
def into(reader):
    return filesystem(reader)


def table(seed: int = 0) -> pa.Table:
    numbers = pa.array(range(seed, seed + ROWS), pa.int64())
    return pa.table({"number": numbers, "third": pc.divide(numbers, 3), "wide": pa.array([made(40, str(n % 997)).hex() for n in range(ROWS)]),
                     "group": pc.cast(pc.subtract(numbers, pc.multiply(pc.divide(numbers, 4), 4)), pa.string())})


def test_a_table_comes_back(out, into, bucket):
    pq.write_table(table(), f"{bucket}/table.parquet", filesystem=out, row_group_size=20_000)
    assert pq.read_table(f"{bucket}/table.parquet", filesystem=into).equals(table())


def test_columns_and_filters_are_read_by_ranges(out, into, bucket):
    pq.write_table(table(), f"{bucket}/table.parquet", filesystem=out, row_group_size=20_000)
    for _ in range(2):
        found = pq.read_table(f"{bucket}/table.parquet", filesystem=into, columns=["third"], filters=[("number", ">=", 150_000), ("number", "<", 150_010)])
        assert found.column("third").to_pylist() == [n // 3 for n in range(150_000, 150_010)]


def test_a_partitioned_dataset_is_scanned(out, into, bucket):
    ds.write_dataset(table(), f"{bucket}/set", filesystem=out, format="parquet", partitioning=["group"], partitioning_flavor="hive")
    dataset = ds.dataset(f"{bucket}/set", filesystem=into, format="parquet", partitioning="hive")
    assert dataset.count_rows() == ROWS
    some = dataset.to_table(columns=["number"], filter=(pc.field("group") == 2) & (pc.field("number") < 1000))
    assert sorted(some.column("number").to_pylist()) == list(range(2, 1000, 4))


def test_an_overwritten_table_is_never_half_old(out, into, bucket):
    for seed in (0, 5, 11):
        pq.write_table(table(seed), f"{bucket}/table.parquet", filesystem=out, row_group_size=30_000)
        assert pq.read_table(f"{bucket}/table.parquet", filesystem=into, columns=["number"]).column("number").to_pylist()[:2] == [seed, seed + 1]
        assert pq.read_table(f"{bucket}/table.parquet", filesystem=into).equals(table(seed))


def test_a_stream_of_writes_becomes_one_object(out, into, bucket):
    data = made(12_000_000, "stream")
    with out.open_output_stream(f"{bucket}/stream") as stream:
        for at in range(0, len(data), 1_000_000):
            stream.write(data[at:at + 1_000_000])
    with into.open_input_file(f"{bucket}/stream") as file:
        assert file.size() == len(data)
        assert file.read_at(1000, 5_999_500) == data[5_999_500:6_000_500]
        assert file.read() == data


def test_files_are_listed_copied_and_deleted(out, into, bucket):
    for name in ("a", "dir/b", "dir/c"):
        with out.open_output_stream(f"{bucket}/{name}") as stream:
            stream.write(name.encode())
    out.copy_file(f"{bucket}/a", f"{bucket}/dir/d")
    found = into.get_file_info(fs.FileSelector(f"{bucket}/dir"))
    assert sorted(info.base_name for info in found) == ["b", "c", "d"]
    out.delete_file(f"{bucket}/dir/b")
    assert into.get_file_info(f"{bucket}/dir/b").type == fs.FileType.NotFound


def test_a_parquet_set_is_read_cold_and_hot(out, into, bucket, job):
    shown = job("pyarrow", pa.__version__, "a partitioned Parquet set")
    ds.write_dataset(table(), f"{bucket}/set", filesystem=out, format="parquet", partitioning=["group"], partitioning_flavor="hive")
    with out.open_output_stream(f"{bucket}/stream", buffer_size=0) as stream:
        stream.write(made(12_000_000, "stream"))
    for name in ("cold", "hot"):
        with getattr(shown, name)(12_000_000):
            with into.open_input_stream(f"{bucket}/stream") as file:
                assert file.read() == made(12_000_000, "stream")
            found = ds.dataset(f"{bucket}/set", filesystem=into, format="parquet", partitioning="hive").to_table()
            assert found.sort_by("number").column("wide").equals(table().column("wide"))
