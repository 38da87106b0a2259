"""Runs MLCommons' DLIO inside tests/testbed/torch.sh, and notes what has passed at the store and at
the gateway by the end of each epoch and each checkpoint. Owns no figure of time or utilisation:
those are the engine's own.

    mlperf_engine.py NOTES COUNTS OTHER GATEWAY SERVERS ARGUMENT...

NOTES: the file to write. COUNTS: the address of the counters of the proxy that this run's bytes
pass. OTHER: of the proxy that they must not pass. GATEWAY: the address of the gateway's metrics, or
`none`. SERVERS: `NAME=PID,…`, whose CPU time is noted. ARGUMENT: of the engine.

Three things of the engine are changed, each because figures would mean something else:
- It reads from a loader before the clock of an epoch starts, to have its processes started. With S3
  that asks for objects before the epoch.
- It counts checkpoints before it reads them, by a listing that finds none in S3.
- It flushes the host's page cache between epochs by `sudo`. The chroot has none, and the engine
  goes on without.
"""

import builtins
import json
import sys
import time
import types
import urllib.request

from cpu_ledger import cpu_seconds


def fetch_text(address):
    with urllib.request.urlopen(f"http://{address}", timeout=30) as answer:
        return answer.read().decode()


def gateway_totals(address):
    """Requests and bytes of bodies that the gateway has had so far."""
    totals = {"requests": 0, "sent": 0, "received": 0}
    names = {
        "verbs3_gateway_requests_total": "requests",
        "verbs3_gateway_body_bytes_sent_total": "sent",
        "verbs3_gateway_body_bytes_received_total": "received",
    }
    for line in fetch_text(f"{address}/metrics").splitlines():
        name = names.get(line.split("{")[0].split(" ")[0])
        if name:
            totals[name] += float(line.rsplit(" ", 1)[1])
    return totals


class TrafficNotes:
    """What has passed, each time that it is asked."""

    def __init__(self, counts, other, gateway, servers):
        self.counts = counts
        self.other = other
        self.gateway = gateway
        self.servers = {
            name: int(pid) for name, pid in (one.split("=") for one in servers.split(","))
        }
        self.notes = []

    def note(self, what):
        self.notes.append(
            {
                "what": what,
                "time": time.time(),
                "store": json.loads(fetch_text(self.counts)),
                "other": json.loads(fetch_text(self.other)),
                "gateway": None if self.gateway == "none" else gateway_totals(self.gateway),
                "cpu": cpu_seconds(self.servers),
            }
        )

    def after(self, owner, method_name, what):
        """Notes when `owner.method_name` has returned. Ranks have met by then, and none has gone
        on: what has passed since the note before lies between the two.
        """
        method = getattr(owner, method_name)

        def noted(statistics, *arguments):
            result = method(statistics, *arguments)
            if statistics.my_rank == 0:
                self.note(what)
            return result

        setattr(owner, method_name, noted)


def checkpoint_without_listing(benchmark):
    """The engine's `_checkpoint` without its count of what is there."""
    benchmark.stats.start_epoch()
    if benchmark.args.num_checkpoints_write > 0:
        benchmark._checkpoint_write()
    if benchmark.args.num_checkpoints_read > 0:
        benchmark._checkpoint_read()
    benchmark.stats.end_epoch()


def main():
    notes_path, *where = sys.argv[1:6]
    sys.argv[1:6] = []

    from streaming_checkpoint import StreamingCheckpointing

    # Where the engine looks for the tool's class.
    package = types.ModuleType("mlpstorage_py")
    package.checkpointing = types.ModuleType("mlpstorage_py.checkpointing")
    package.checkpointing.StreamingCheckpointing = StreamingCheckpointing
    sys.modules[package.__name__] = package
    sys.modules[package.checkpointing.__name__] = package.checkpointing

    from dlio_benchmark import main as engine
    from dlio_benchmark.utils.statscounter import StatsCounter

    # Its module calls `iter` to warm up, and nowhere else.
    engine.iter = lambda _loader: builtins.iter(())
    engine.DLIOBenchmark._checkpoint = checkpoint_without_listing
    traffic = TrafficNotes(*where)
    traffic.after(StatsCounter, "start_run", "run")
    traffic.after(StatsCounter, "end_train", "epoch")
    traffic.after(StatsCounter, "end_save_ckpt", "save")
    traffic.after(StatsCounter, "end_load_ckpt", "load")
    engine.main()
    if traffic.notes:
        with open(notes_path, "w") as file:
            json.dump(traffic.notes, file)


# Processes that read data import this file again.
if __name__ == "__main__":
    main()
