#!/usr/bin/env python3
"""Compares writes from lent memory with boto3 over HTTP: paired and interleaved, with the client's CPU.

    lent_writes.py ENDPOINT SOCKET BUCKET [--rounds N]     keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY

Writes one object of each size each way once, then in turns; the last size as a file of parts of 8 MiB.
Prints medians. Not run in CI: a shared machine has no figures worth keeping.
"""

import io
import os

import boto3

import verbs3
from timed_ways import SIZES, compare_ways, print_heading, read_arguments, rounds_of

FILE_BYTES = 64 << 20


def main():
    arguments = read_arguments(__doc__)
    plain = boto3.client("s3", endpoint_url=arguments.endpoint)
    fast = verbs3.client("s3", endpoint_url=arguments.endpoint, socket=arguments.socket, memory="128MiB")
    reader = verbs3.connect(arguments.socket, memory="128MiB")
    print_heading()
    for name, size in SIZES.items():
        where, body = {"Bucket": arguments.bucket, "Key": f"bench-{size}"}, os.urandom(size)
        ways = {
            "boto3": lambda: plain.put_object(**where, Body=body),
            "verbs3.client": lambda: fast.put_object(**where, Body=body),
            "write": lambda: reader.write(arguments.bucket, where["Key"], body),
        }
        compare_ways(name, ways, rounds_of(size, arguments.rounds))
    body = os.urandom(FILE_BYTES)
    ways = {
        "boto3": lambda: plain.upload_fileobj(io.BytesIO(body), arguments.bucket, "bench-file"),
        "verbs3.client": lambda: fast.upload_fileobj(io.BytesIO(body), arguments.bucket, "bench-file"),
    }
    compare_ways("a file", ways, 10)


if __name__ == "__main__":
    main()
