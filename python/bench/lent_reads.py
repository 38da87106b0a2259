#!/usr/bin/env python3
"""Compares reads by lent memory with boto3 over HTTP: paired and interleaved, with the client's CPU.

    lent_reads.py ENDPOINT SOCKET BUCKET [--rounds N]     keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY

Writes one object of each size, reads each way once, then in turns. Prints medians. Not run in CI:
a shared machine has no figures worth keeping.
"""

import os

import boto3

import verbs3
from timed_ways import SIZES, compare_ways, print_heading, read_arguments, rounds_of



def main():
    arguments = read_arguments(__doc__)
    plain = boto3.client("s3", endpoint_url=arguments.endpoint)
    fast = verbs3.client("s3", endpoint_url=arguments.endpoint, socket=arguments.socket)
    # Pages need `gateway.lending.pages_total`; without it they are copies.
    reader = verbs3.connect(arguments.socket, memory="128MiB", pages=8)
    target = bytearray(max(SIZES.values()))
    print_heading()
    for name, size in SIZES.items():
        key = f"bench-{size}"
        plain.put_object(Bucket=arguments.bucket, Key=key, Body=os.urandom(size))
        ways = {
            "boto3": lambda: plain.get_object(Bucket=arguments.bucket, Key=key)["Body"].read(),
            "verbs3.client": lambda: fast.get_object(Bucket=arguments.bucket, Key=key)["Body"].read(),
            "read": lambda: reader.read(arguments.bucket, key, (0, size)).release(),
            "read_pages": lambda: [
                view.release() for view in reader.read_pages(arguments.bucket, key, (0, size))
            ],
            "read into": lambda: reader.read(arguments.bucket, key, (0, size), into=target),
        }
        compare_ways(name, ways, rounds_of(size, arguments.rounds))


if __name__ == "__main__":
    main()
