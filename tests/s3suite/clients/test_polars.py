"""polars over its own S3 client (object_store): a partitioned Parquet set written, scanned with filters, read whole."""

import polars as pl
import pytest
from data import made
from endpoint import REGION

ROWS = 150_000


def options(to) -> dict[str, str]:
    return {"aws_endpoint_url": to.url, "aws_allow_http": "true", "aws_access_key_id": to.access_key, "aws_secret_access_key": to.secret_key,
            "aws_region": REGION, "aws_virtual_hosted_style_request": "false"}


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return pl.DataFrame({"number": range(ROWS), "group": [n % 3 for n in range(ROWS)], "wide": [made(30, str(n)).hex() for n in range(ROWS)]})


def test_a_parquet_scan_cold_and_hot(table, writer, reader, bucket, job):
    shown = job("polars", pl.__version__, "a Parquet set scanned with filters")
    for group in range(3):
        table.filter(pl.col("group") == group).write_parquet(f"s3://{bucket}/set/group-{group}.parquet", row_group_size=10_000,
                                                              compression="uncompressed", storage_options=options(writer))

    def scan() -> None:
        lazy = pl.scan_parquet(f"s3://{bucket}/set/*.parquet", storage_options=options(reader))
        some = lazy.filter(pl.col("number").is_between(70_000, 70_009)).select("wide").collect()
        assert sorted(some["wide"]) == sorted(table["wide"][70_000:70_010])
        assert lazy.collect().sort("number").equals(table)

    # No value occurs twice, and nothing is compressed: the files are at least as long as the values.
    size = ROWS * 60
    with shown.cold(size):
        scan()
    with shown.hot(size):
        scan()
