"""Reads what run.sh has left of each run of the engine, and holds it against the way of its side.

Times and utilisation are the engine's own. Bytes are those of the notes that mlperf_engine.py made.
Draws no tables and knows no aims.
"""

import json
import sys


def read_json(path):
    return json.loads(path.read_text())


class StoreTraffic:
    """What passed between two notes of a run."""

    def __init__(self, begin, end):
        def between(name, of):
            return end[of][name] - begin[of][name] if begin[of] else 0

        self.from_store = between("from_store", "store")
        self.to_store = between("to_store", "store")
        self.answers = between("answers", "store")
        self.elsewhere = between("from_store", "other") + between("to_store", "other")
        self.sent = between("sent", "gateway")
        self.received = between("received", "gateway")
        cpu = {name: end["cpu"][name] - before for name, before in begin["cpu"].items()}
        self.cpus_seconds, self.idle_seconds = cpu.pop("all"), cpu.pop("idle")
        self.others_seconds = max(0, self.cpus_seconds - self.idle_seconds - sum(cpu.values()))
        self.cpu_seconds = cpu

    def percent_of_cpus(self, seconds):
        return 100 * seconds / self.cpus_seconds

    def summary(self):
        """What is kept of it in the record."""
        return {
            "from_store": self.from_store,
            "to_store": self.to_store,
            "answers": self.answers,
            "cpu_seconds": {name: round(seconds, 2) for name, seconds in self.cpu_seconds.items()},
            "idle_percent": round(self.percent_of_cpus(self.idle_seconds), 1),
            "others_percent": round(self.percent_of_cpus(self.others_seconds), 1),
        }


def spans(notes, name):
    """The traffic of each `name`, in order: since the note before."""
    return [
        StoreTraffic(*pair)
        for pair in zip(notes, notes[1:], strict=False)
        if pair[1]["what"] == name
    ]


def check_way(run, traffic, body_bytes, written):
    """Whether the bytes of a span went the way of its side; `written`: they went to the store."""
    passed = {"store": traffic.to_store if written else traffic.from_store}
    if run["side"] != "direct":
        # What is read through a gateway need not come from the store; what is written goes there.
        passed = {"gateway": traffic.received, **passed} if written else {"gateway": traffic.sent}
    for where, count in passed.items():
        if count < body_bytes:
            refuse_run(run, f"the {where} had {count:.0f} of {body_bytes} bytes")
    if traffic.elsewhere:
        refuse_run(run, f"{traffic.elsewhere} bytes passed the other side's proxy")


def refuse_run(run, why):
    sys.exit(f"mlperf: {run['folder']}: {why}: these are not figures of its side; run again")


def training_figures(folder, run, data_bytes):
    """Figures of one training run, a list entry for each epoch."""
    place = folder / run["folder"]
    epochs = read_json(place / "0_per_epoch_stats.json")
    output = read_json(place / "0_output.json")
    traffic = spans(read_json(place / "notes.json"), "epoch")
    for epoch in traffic:
        check_way(run, epoch, data_bytes, written=False)
    return {
        **run,
        "utilisation": read_json(place / "summary.json")["metric"]["train_au_percentage"],
        "seconds": [float(epochs[str(number + 1)]["duration"]) for number in range(len(traffic))],
        "first_step": [
            output[str(number + 1)]["load"]["block1"][0] for number in range(len(traffic))
        ],
        "epochs": [epoch.summary() for epoch in traffic],
    }


def checkpoint_figures(folder, run):
    """Figures of one checkpoint run, a list entry for each save and each load."""
    place = folder / run["folder"]
    stats = read_json(place / "0_per_epoch_stats.json")["1"]
    notes = read_json(place / "notes.json")
    size = read_json(place / "summary.json")["metric"]["checkpoint_size_GB"] * (1 << 30)
    figures = {**run, "bytes": size}
    for what, key in (("save", "save_ckpt"), ("load", "load_ckpt")):
        traffic = spans(notes, what)
        for span in traffic:
            check_way(run, span, int(size), written=what == "save")
        names = sorted(name for name in stats if name.startswith(key))
        figures[f"{what}_seconds"] = [stats[name]["duration"] for name in names]
        figures[what] = [span.summary() for span in traffic]
    return figures
