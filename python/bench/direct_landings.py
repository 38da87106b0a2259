"""Compares gateways that differ in how bytes get into lent memory, by time and by their own CPU.

    direct_landings.py BUCKET NAME=SOCKET:PID NAME=SOCKET:PID...

Each gateway is named, with its lending socket and its process. All have to serve the same bucket
from the same workers, such as two with `gateway.lending.direct` on and off. Objects are put and read
until they are hot; then the ways are taken in turns. Keys are those of the environment.
"""

import os
import statistics
import sys
import time

import verbs3

SIZES = {"256 KiB": 256 << 10, "1 MiB": 1 << 20, "4 MiB": 4 << 20, "16 MiB": 16 << 20}
TICKS = os.sysconf("SC_CLK_TCK")
BYTES_READ = 1 << 30


class Gateway:
    def __init__(self, argument):
        self.name, _, rest = argument.partition("=")
        socket, _, pid = rest.rpartition(":")
        self.pid = int(pid)
        self.reader = verbs3.connect(socket, memory="64MiB")

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    bucket, gateways = sys.argv[1], [Gateway(argument) for argument in sys.argv[2:]]
    print(f"{'size':>8}  {'gateway':<10}{'median µs':>10}{'gateway CPU µs':>16}")
    for size_name, size in SIZES.items():
        key, content = f"direct/{size}", os.urandom(size)
        gateways[0].reader.write(bucket, key, content)
        for gateway in gateways:
            for _ in range(3):
                assert bytes(gateway.reader.read(bucket, key, (0, size))) == content
        compare_gateways(size_name, gateways, bucket, key, size)


def compare_gateways(size_name, gateways, bucket, key, size):
    batch = max(1, (16 << 20) // size)
    times = {gateway.name: [] for gateway in gateways}
    spent = dict.fromkeys(times, 0.0)
    reads = 0
    while reads * size < BYTES_READ:
        reads += batch
        for gateway in gateways:
            cpu = gateway.cpu_seconds()
            for _ in range(batch):
                began = time.perf_counter()
                gateway.reader.read(bucket, key, (0, size)).release()
                times[gateway.name].append(time.perf_counter() - began)
            spent[gateway.name] += gateway.cpu_seconds() - cpu
    for name, taken in times.items():
        wall, cpu = statistics.median(taken), spent[name] / reads
        print(f"{size_name:>8}  {name:<10}{wall * 1e6:>10.0f}{cpu * 1e6:>16.0f}")


if __name__ == "__main__":
    main()
