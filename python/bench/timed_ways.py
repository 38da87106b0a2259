"""Times ways of doing the same thing, in turns, and prints their medians with the client's CPU."""

import argparse
import statistics
import time

# So often each way runs in a row before the next one has its turn.
SERIES = 20
SIZES = {"4 KiB": 4 << 10, "128 KiB": 128 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}


def read_arguments(document):
    """What a script was called with: ENDPOINT SOCKET BUCKET [--rounds N]."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint")
    parser.add_argument("socket")
    parser.add_argument("bucket")
    parser.add_argument("--rounds", type=int, default=200)
    return parser.parse_args()


def rounds_of(size, rounds):
    """Large objects take fewer rounds, but 20 at least."""
    return max(rounds * (4 << 10) // (size + (4 << 10)), 20)


def print_heading():
    print(f"{'size':>8}  {'way':<14}{'median µs':>10}{'CPU µs':>10}   of boto3")


def compare_ways(name, ways, rounds):
    """Runs all ways in turns, `SERIES` times each, as who reads goes on reading. `ways`: by name, one of which is `boto3`."""
    taken = {way: [] for way in ways}
    for run in ways.values():
        run()
    for _ in range(max(rounds // SERIES, 3)):
        for way, run in ways.items():
            # The first one after another way finds caches and CPUs as that one left them.
            run()
            taken[way] += [_measure(run) for _ in range(SERIES)]
    base = statistics.median(wall for wall, _ in taken["boto3"])
    for way, times in taken.items():
        wall = statistics.median(wall for wall, _ in times)
        cpu = statistics.mean(cpu for _, cpu in times)
        print(f"{name:>8}  {way:<14}{wall * 1e6:>10.0f}{cpu * 1e6:>10.0f}   {wall / base:.3f}")


def _measure(run):
    """Seconds and CPU seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu
