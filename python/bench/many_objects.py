#!/usr/bin/env python3
"""Compares ways to ask for many objects: a thousand HEADs, a thousand small reads, by all that the package offers.

    many_objects.py ENDPOINT SOCKET BUCKET [--objects N] [--rounds N]     keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY

Writes N objects of 4 KiB, asks each way once, then in turns. Half of the keys of the HEADs are not there. Prints medians of a
whole round, and the client's CPU. Not run in CI: a shared machine has no figures worth keeping.
"""

import argparse
import asyncio
import os
import statistics
import time

import boto3
import fsspec

import verbs3


def measure(ask):
    """Seconds and CPU seconds of one round."""
    cpu, wall = time.process_time(), time.perf_counter()
    ask()
    return time.perf_counter() - wall, time.process_time() - cpu


async def gather_reads(reader, reads):
    await asyncio.gather(*(reader.read(*read) for read in reads))


async def iterate_reads(reader, reads):
    async for _ in reader.read_many(reads):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint")
    parser.add_argument("socket")
    parser.add_argument("bucket")
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    bucket, count = arguments.bucket, arguments.objects
    plain = boto3.client("s3", endpoint_url=arguments.endpoint)
    keys = [f"bench-many/{at:05}" for at in range(count)]
    for key in keys:
        plain.put_object(Bucket=bucket, Key=key, Body=os.urandom(4096))
    reader = verbs3.connect(arguments.socket, memory="64MiB")
    wide = verbs3.connect(arguments.socket, memory="64MiB", reads_max=512)
    awaited = verbs3.AsyncReader(reader)
    files = fsspec.filesystem("verbs3", socket=arguments.socket, endpoint_url=arguments.endpoint)
    present = [(bucket, key) for key in keys]
    half = [(bucket, key if at % 2 else f"{key}-missing") for at, key in enumerate(keys)]
    reads = [(bucket, key, (0, 4096)) for key in keys]
    paths = [f"{bucket}/{key}" for key in keys]
    sample = max(1, count // 20)

    def boto_heads():
        for _, key in present[:sample]:
            plain.head_object(Bucket=bucket, Key=key)

    def one_by_one():
        for read in reads:
            reader.read(*read).release()

    ways = {
        f"boto3 head_object, {sample} of them": boto_heads,
        "exists_many": lambda: reader.exists_many(present),
        "exists_many, half absent": lambda: reader.exists_many(half),
        "exists_many, reads_max=512": lambda: wide.exists_many(present),
        "head_many": lambda: reader.head_many(present),
        "read, one by one": one_by_one,
        "read_many": lambda: [None for _ in reader.read_many(reads)],
        "async gather of read": lambda: asyncio.run(gather_reads(awaited, reads)),
        "async read_many": lambda: asyncio.run(iterate_reads(awaited, reads)),
        "fsspec cat": lambda: files.cat(paths),
    }
    taken = {way: [] for way in ways}
    for ask in ways.values():
        ask()
    for _ in range(arguments.rounds):
        for way, ask in ways.items():
            taken[way].append(measure(ask))
    print(f"{count} objects{'':<24}{'median ms':>10}{'least ms':>10}{'CPU ms':>10}")
    for way, times in taken.items():
        walls = [wall for wall, _ in times]
        cpu = statistics.mean(cpu for _, cpu in times)
        print(f"{way:<34}{statistics.median(walls) * 1e3:>10.2f}{min(walls) * 1e3:>10.2f}{cpu * 1e3:>10.2f}")


if __name__ == "__main__":
    main()
