#!/usr/bin/env python3
"""Compares other engines that read from S3 with this package: the same objects, in turns, every byte compared.

    engines.py ENDPOINT SOCKET BUCKET [--rounds N]     keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY

Each engine has a process of its own, so that a crash is one engine's, and so is the CPU: user and system of the process and its
children. Objects are read once before, then in turns. An engine that can't be run has a row with the reason, and makes the exit
status 1, as wrong bytes do. LMCache needs an ENDPOINT by name (`gateway.domains`), and the bucket's name under it to be resolved.
Not run in CI: a shared machine has no figures worth keeping.
"""

import json
import mmap
import multiprocessing
import os
import resource
import statistics
import struct
import sys
import tempfile
import time
import traceback

import boto3
import numpy

from engine_readers import ENGINES, MIB, ObjectSet, version_of
from timed_ways import read_arguments, rounds_of

SETS = {"64 x 1 MiB": (64, MIB), "8 x 16 MiB": (8, 16 * MIB), "128 MiB file": (1, 128 * MIB)}
# Covers an import of torch on a busy machine, and then some.
ANSWER_SECONDS_MAX = 180


def make_file(size):
    """A safetensors file of tensors of 2 MiB, the last one shorter."""
    lengths = [2 * MIB] * (size // (2 * MIB))
    entry = {"dtype": "U8", "shape": [2 * MIB], "data_offsets": [size, size]}
    head_bytes = 8 + (len(json.dumps(entry)) + 24) * len(lengths)
    lengths[-1] -= head_bytes
    ends = numpy.cumsum(lengths).tolist()
    tensors = {
        f"layer.{at}.weight": {"dtype": "U8", "shape": [length], "data_offsets": [end - length, end]}
        for at, (length, end) in enumerate(zip(lengths, ends, strict=True))
    }
    head = json.dumps(tensors).encode().ljust(head_bytes - 8)
    return struct.pack("<Q", len(head)) + head + os.urandom(ends[-1])


def write_objects(arguments, name, folder):
    """Writes a set of objects, and a file of the same bytes for the processes to compare with."""
    count, size = SETS[name]
    keys = tuple(f"engines-{size}-{at:03}" for at in range(count))
    objects = ObjectSet(arguments.endpoint, arguments.socket, arguments.bucket, keys, size)
    client = boto3.client("s3", endpoint_url=arguments.endpoint)
    path = os.path.join(folder, "expected")
    with open(path, "wb") as out:
        for key in keys:
            body = make_file(size) if count == 1 else os.urandom(size)
            client.put_object(Bucket=arguments.bucket, Key=key, Body=body)
            out.write(body)
    return objects, path


def serve_engine(name, objects, path, pipe, log):
    """The process of one engine: opens it, then reads as often as it is asked to."""
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    with open(path, "rb") as file:
        expected = numpy.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), numpy.uint8)
    try:
        read = ENGINES[name][1](objects)
        while True:
            pipe.send(measure_read(read, expected))
            pipe.recv()
    except EOFError:
        # Some engines' threads would be waited for, for ever.
        os._exit(0)
    except BaseException as error:
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {error}")


def measure_read(read, expected):
    """Seconds and CPU seconds of one read. What it has read is compared afterwards, all of it."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    found = read()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    at = 0
    for buffer in found:
        part = numpy.frombuffer(buffer, numpy.uint8)
        if not numpy.array_equal(part, expected[at : at + len(part)]):
            raise AssertionError(f"WRONG BYTES in the {len(part)} from byte {at} of the set on")
        at += len(part)
    if at != len(expected):
        raise AssertionError(f"WRONG LENGTH: {at} bytes of {len(expected)}")
    return wall, cpu


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class EngineProcess:
    """The process of one engine, as the driver sees it."""

    def __init__(self, name, objects, path, folder):
        spawn = multiprocessing.get_context("spawn")
        self.failure = None
        self.times = []
        self._log = os.path.join(folder, f"{name}.log")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=serve_engine, args=(name, objects, path, theirs, self._log), daemon=True)
        self._process.start()
        theirs.close()
        # The first read connects, and fills what the engine keeps: it does not count.
        self._take_answer()

    def read(self):
        if self.failure is None:
            self._pipe.send("read")
            self.times.append(self._take_answer())

    def end(self):
        self._pipe.close()
        self._process.join(5)
        self._process.kill()

    def _take_answer(self):
        """Seconds and CPU seconds; `None` where it has failed."""
        try:
            if not self._pipe.poll(ANSWER_SECONDS_MAX):
                self.failure = f"no answer within {ANSWER_SECONDS_MAX} s"
                self._process.kill()
                return None
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            self.failure = f"its process ended with {self._process.exitcode}"
            return None
        if isinstance(answer, str):
            self.failure = answer
            return None
        return answer

    def last_lines(self):
        with open(self._log, errors="replace") as file:
            return file.read().splitlines()[-12:]


def compare_engines(arguments, name):
    """Prints the rows of one set. Returns how many engines have failed."""
    with tempfile.TemporaryDirectory() as folder:
        objects, path = write_objects(arguments, name, folder)
        engines = {engine: EngineProcess(engine, objects, path, folder) for engine in ENGINES}
        for _ in range(rounds_of(objects.size, arguments.rounds)):
            for process in engines.values():
                process.read()
        base = [wall for wall, _ in engines["boto3"].times] if engines["boto3"].failure is None else None
        for engine, process in engines.items():
            print_row(name, engine, process, base, objects.bytes_in_all)
            process.end()
        return sum(process.failure is not None for process in engines.values())


def print_row(name, engine, process, base, length):
    title = f"{name:<13}{engine:<22}{version_of(ENGINES[engine][0]):<9}"
    if process.failure is not None:
        print(f"{title}NO FIGURES: {process.failure}", flush=True)
        for line in process.last_lines():
            print(f"{'':<13}| {line}", flush=True)
        return
    walls = [wall for wall, _ in process.times]
    wall, cpu = statistics.median(walls), statistics.median(cpu for _, cpu in process.times)
    ratio = statistics.median(own / theirs for own, theirs in zip(walls, base, strict=True)) if base else float("nan")
    print(f"{title}{wall * 1e3:>10.1f}{cpu * 1e3:>9.1f}{length / wall / 1e9:>8.2f}   {ratio:.3f}", flush=True)


def main():
    arguments = read_arguments(__doc__)
    print(f"{'objects':<13}{'engine':<22}{'version':<9}{'median ms':>10}{'CPU ms':>9}{'GB/s':>8}   of boto3")
    failures = sum(compare_engines(arguments, name) for name in SETS)
    if failures:
        sys.exit(f"{failures} of {len(ENGINES) * len(SETS)} rows have no figures: see above")


if __name__ == "__main__":
    main()
