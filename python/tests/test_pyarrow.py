"""pyarrow over the file system: whole tables, single columns by ranges, data sets by folders."""

import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
import verbs3.pyarrow

BUCKET = "tables"
ROWS = 400_000


@pytest.fixture(scope="module")
def table(plain):
    plain.create_bucket(Bucket=BUCKET)
    return pyarrow.table(
        {
            "wide": [f"a text that takes room {at * 2654435761 % 1000003}" for at in range(ROWS)],
            "number": pyarrow.array(range(ROWS), pyarrow.int32()),
            "other": [float(at * 7919 % 104729) for at in range(ROWS)],
        }
    )


@pytest.fixture
def files(environment, table):
    return verbs3.pyarrow.file_system(memory="32MiB")


def test_a_table_is_written_and_read_back(files, table):
    pyarrow.parquet.write_table(table, f"{BUCKET}/table.parquet", filesystem=files, row_group_size=100_000)
    assert pyarrow.parquet.read_table(f"{BUCKET}/table.parquet", filesystem=files).equals(table)
    with files.open_input_stream(f"{BUCKET}/table.parquet") as stream:
        assert stream.read(4) == b"PAR1"


def test_a_column_takes_its_own_bytes_alone(files, table, gateway):
    pyarrow.parquet.write_table(table, f"{BUCKET}/columns.parquet", filesystem=files, row_group_size=100_000)
    size = files.get_file_info(f"{BUCKET}/columns.parquet").size
    before = gateway.metric("verbs3_lending_bytes_landed_total")
    found = pyarrow.parquet.read_table(f"{BUCKET}/columns.parquet", columns=["number"], filesystem=files)
    landed = gateway.metric("verbs3_lending_bytes_landed_total") - before
    assert found.equals(table.select(["number"]))
    with files.open_input_file(f"{BUCKET}/columns.parquet") as file:
        about = pyarrow.parquet.ParquetFile(file).metadata
        wanted = sum(about.row_group(at).column(1).total_compressed_size for at in range(about.num_row_groups))
    assert wanted < size / 2
    # The column, the footer, and what the buffer reads beside them.
    assert wanted <= landed <= wanted + (64 << 10) * (about.num_row_groups + 2)


def test_a_data_set_is_filtered(files, table):
    for at in range(4):
        part = table.slice(at * 1000, 1000)
        pyarrow.parquet.write_table(part, f"{BUCKET}/set/part={at}/data.parquet", filesystem=files)
    found = pyarrow.dataset.dataset(f"{BUCKET}/set", filesystem=files, partitioning="hive")
    assert found.count_rows() == 4000
    rows = found.to_table(filter=pyarrow.dataset.field("number") >= 3990)
    assert sorted(rows["number"].to_pylist()) == list(range(3990, 4000)) and set(rows["part"].to_pylist()) == {3}


def test_a_data_set_is_written_anew(files, table):
    for rows in (4000, 2000):
        part = table.slice(0, rows).append_column("day", pyarrow.array([at % 3 for at in range(rows)]))
        pyarrow.dataset.write_dataset(
            part, f"{BUCKET}/anew", filesystem=files, format="parquet", partitioning=["day"], existing_data_behavior="delete_matching"
        )
        found = pyarrow.dataset.dataset(f"{BUCKET}/anew", filesystem=files, partitioning=["day"]).to_table()
        assert sorted(found["number"].to_pylist()) == list(range(rows))


def test_paths_and_errors_are_those_of_files(files, table):
    kinds = [found.type for found in files.get_file_info([f"{BUCKET}/set", f"{BUCKET}/nothing"])]
    assert kinds[1] == pyarrow.fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        files.open_input_file(f"{BUCKET}/nothing")
    with pytest.raises(ValueError, match="options"):
        verbs3.pyarrow.file_system(verbs3.pyarrow.Verbs3FileSystem(), memory="1MiB")
