"""Times ways of doing the same thing, in turns, and prints their medians with the client's CPU."""

import statistics
import time


def print_heading():
    print(f"{'size':>8}  {'way':<14}{'median µs':>10}{'CPU µs':>10}   of boto3")


def compare_ways(name, ways, rounds):
    """Runs each way once, then all in turns. `ways`: by name, one of which is `boto3`."""
    taken = {way: [] for way in ways}
    for run in ways.values():
        run()
    for _ in range(rounds):
        for way, run in ways.items():
            taken[way].append(_measure(run))
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
