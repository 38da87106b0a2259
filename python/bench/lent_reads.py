#!/usr/bin/env python3
"""Compares reads by lent memory with boto3 over HTTP: paired and interleaved, with the client's CPU.

    lent_reads.py ENDPOINT SOCKET BUCKET [--rounds N]     keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY

Writes one object of each size, reads each way once, then in turns. Prints medians. Not run in CI:
a shared machine has no figures worth keeping.
"""

import argparse
import os
import statistics
import time

import boto3

import verbs3

SIZES = {"4 KiB": 4 << 10, "128 KiB": 128 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}


def measure(read):
    """Seconds and CPU seconds of one read."""
    cpu, wall = time.process_time(), time.perf_counter()
    read()
    return time.perf_counter() - wall, time.process_time() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint")
    parser.add_argument("socket")
    parser.add_argument("bucket")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    plain = boto3.client("s3", endpoint_url=arguments.endpoint)
    fast = verbs3.client("s3", endpoint_url=arguments.endpoint, socket=arguments.socket)
    reader = verbs3.connect(arguments.socket, memory="128MiB")
    target = bytearray(max(SIZES.values()))
    print(f"{'size':>8}  {'way':<14}{'median µs':>10}{'CPU µs':>10}   of boto3")
    for name, size in SIZES.items():
        key = f"bench-{size}"
        plain.put_object(Bucket=arguments.bucket, Key=key, Body=os.urandom(size))
        ways = {
            "boto3": lambda: plain.get_object(Bucket=arguments.bucket, Key=key)["Body"].read(),
            "verbs3.client": lambda: fast.get_object(Bucket=arguments.bucket, Key=key)["Body"].read(),
            "read": lambda: reader.read(arguments.bucket, key, (0, size)).release(),
            "read into": lambda: reader.read(arguments.bucket, key, (0, size), into=target),
        }
        taken = {way: [] for way in ways}
        for read in ways.values():
            read()
        for _ in range(max(arguments.rounds * (4 << 10) // (size + (4 << 10)), 20)):
            for way, read in ways.items():
                taken[way].append(measure(read))
        base = statistics.median(wall for wall, _ in taken["boto3"])
        for way, times in taken.items():
            wall = statistics.median(wall for wall, _ in times)
            cpu = statistics.mean(cpu for _, cpu in times)
            print(f"{name:>8}  {way:<14}{wall * 1e6:>10.0f}{cpu * 1e6:>10.0f}   {wall / base:.3f}")


if __name__ == "__main__":
    main()
