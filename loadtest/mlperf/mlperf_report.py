#!/usr/bin/env python3
"""Makes mlperf.json and its tables of what run.sh has left in a folder. Owns aims and words.

    mlperf_report.py DIR

Fails where the bytes of a side did not go the way that its name says: they would be the figures of
another side.
"""

import json
import pathlib
import re
import sys

from run_figures import checkpoint_figures, read_json, training_figures


def middle(figures):
    ordered = sorted(figures)
    count = len(ordered)
    return ordered[count // 2] if count % 2 else sum(ordered[count // 2 - 1 : count // 2 + 1]) / 2


def shown(figures, form="{:.1f}"):
    """The middle, and what it lies between."""
    low, high = form.format(min(figures)), form.format(max(figures))
    text = form.format(middle(figures))
    return text if low == high else f"{text} ({low}–{high})"


def row(name, *cells):
    return "| " + " | ".join((name, *cells)) + " |"


class AimList:
    """What was aimed at, and whether it was met."""

    def __init__(self):
        self.aims = []

    def judge(self, name, value, wanted, met):
        """Keeps it, and gives the cell of a table."""
        self.aims.append({"aim": name, "value": value, "wanted": wanted, "met": bool(met)})
        return f"{wanted}: {'met' if met else '**missed**'}"


def of_rounds(runs, side):
    return sorted((run for run in runs if run["side"] == side), key=lambda run: run["round"])


def ratios(theirs, ours, figure):
    """A figure of direct's runs ÷ that of ours, of each round."""
    return [figure(one) / figure(other) for one, other in zip(theirs, ours, strict=False)]


def spent(span):
    """CPU seconds of the servers of a span; what is not there has none."""
    cpu = span["cpu_seconds"]
    ours = cpu.get("gateway", 0) + cpu.get("worker", 0)
    return cpu["store"] + cpu["proxy"], ours, cpu["engine"]


def cpu_cell(spans_of_side):
    """Store with proxy, gateway with worker, engine; and what was idle and others'."""
    parts = [middle(figures) for figures in zip(*map(spent, spans_of_side), strict=True)]
    idle, others = (
        middle([span[name] for span in spans_of_side])
        for name in ("idle_percent", "others_percent")
    )
    return f"{parts[0]:.1f} + {parts[1]:.1f} + {parts[2]:.1f}; {idle:.0f} %, {others:.0f} %"


CPU_ROW = "CPU s: store and proxy + verbs3 + engine; idle, others"


def training_table(runs, data_bytes, aims):
    direct, through = of_rounds(runs, "direct"), of_rounds(runs, "through")
    if not direct or not through:
        return []
    first, later = slice(0, 1), slice(1, None)
    cold = ratios(through, direct, lambda run: run["utilisation"][0])
    faster = ratios(direct, through, lambda run: run["seconds"][0])
    hot = [figure for run in through for figure in run["utilisation"][later]]
    stored = [
        [sum(epoch["from_store"] for epoch in run["epochs"]) / data_bytes for run in side]
        for side in (direct, through)
    ]

    def both(key, part):
        return [
            shown([figure for run in side for figure in run[key][part]])
            for side in (direct, through)
        ]

    def epochs(part, cell):
        return [
            cell([epoch for run in side for epoch in run["epochs"][part]])
            for side in (direct, through)
        ]

    def answers(spans_of_side):
        return shown([span["answers"] for span in spans_of_side], "{:.0f}")

    return [
        row("training", "direct", "through verbs3", "ratio", "aim"),
        "|---|---|---|---|---|",
        row(
            "utilisation, first epoch (cold), %",
            *both("utilisation", first),
            shown(cold, "{:.3f}"),
            aims.judge("cold utilisation ÷ direct's", middle(cold), "≥ 1", middle(cold) >= 1),
        ),
        row(
            "utilisation, later epochs (hot), %",
            *both("utilisation", later),
            "",
            aims.judge("hot utilisation", middle(hot), "≥ 98 %", middle(hot) >= 98),
        ),
        row(
            "bytes from the store ÷ data, all epochs",
            *(shown(side, "{:.3f}") for side in stored),
            "",
            aims.judge("store bytes ÷ data", max(stored[1]), "≤ 1.01", max(stored[1]) <= 1.01),
        ),
        row("seconds of the first epoch", *both("seconds", first), shown(faster, "{:.3f}"), ""),
        row("… of which until the first step", *both("first_step", first), "", ""),
        row("seconds of a later epoch", *both("seconds", later), "", ""),
        row("answers of the store, first epoch", *epochs(first, answers), "", ""),
        row("answers of the store, a later epoch", *epochs(later, answers), "", ""),
        row(f"{CPU_ROW}, first epoch", *epochs(first, cpu_cell), "", ""),
        row(f"{CPU_ROW}, a later epoch", *epochs(later, cpu_cell), "", ""),
    ]


def checkpoint_table(runs, aims):
    sides = [of_rounds(runs, name) for name in ("direct", "plain", "populated")]
    if not all(sides):
        return []
    direct, plain, populated = sides

    def seconds(what):
        return [
            shown([figure for run in side for figure in run[f"{what}_seconds"]], "{:.2f}")
            for side in sides
        ]

    def rates(what):
        return [
            ratios(direct, side, lambda run: middle(run[f"{what}_seconds"]))
            for side in (plain, populated)
        ]

    def each(what, cell):
        return [cell([span for run in side for span in run[what]]) for side in sides]

    def answers(spans_of_side):
        return shown([span["answers"] for span in spans_of_side], "{:.0f}")

    size = direct[0]["bytes"]
    read = [[span["from_store"] / size for run in side for span in run["load"]] for side in sides]
    saved, copied = rates("save")
    cold, hot = rates("load")
    verdicts = [
        aims.judge(f"save{how} ÷ direct's rate", middle(of), "≥ 0.97", middle(of) >= 0.97)
        for how, of in (("", saved), (" with populate on write", copied))
    ]
    return [
        row("checkpoints", "direct", "through verbs3", "… with populate on write", "aim"),
        "|---|---|---|---|---|",
        row("save, s", *seconds("save"), ""),
        row(
            "save, ÷ direct's rate",
            "1",
            shown(saved, "{:.3f}"),
            shown(copied, "{:.3f}"),
            "; ".join(verdicts),
        ),
        row("restore, s", *seconds("load"), ""),
        row("restore, ÷ direct's rate", "1", shown(cold, "{:.3f}"), shown(hot, "{:.3f}"), ""),
        row(
            "restore, bytes from the store ÷ its bytes",
            *(shown(side, "{:.3f}") for side in read),
            aims.judge(
                "restore's store bytes ÷ its bytes",
                max(read[2]),
                "from the tier, ≤ 0.01",
                max(read[2]) <= 0.01,
            ),
        ),
        row("answers of the store, save", *each("save", answers), ""),
        row("answers of the store, restore", *each("load", answers), ""),
        row(f"{CPU_ROW}, save", *each("save", cpu_cell), ""),
        row(f"{CPU_ROW}, restore", *each("load", cpu_cell), ""),
    ]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip().splitlines()[2].strip())
    folder = pathlib.Path(sys.argv[1])
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    machine = read_json(folder / "machine.json")
    listing = folder / "data.xml"
    sizes = (
        [int(size) for size in re.findall(r"<Size>(\d+)</Size>", listing.read_text())]
        if listing.exists()
        else []
    )
    trained = [training_figures(folder, run, sum(sizes)) for run in runs if run["part"] == "train"]
    saved = [checkpoint_figures(folder, run) for run in runs if run["part"] == "checkpoint"]
    aims = AimList()
    tables = [training_table(trained, sum(sizes), aims), checkpoint_table(saved, aims)]
    record = {
        "machine": machine,
        "data_bytes": sum(sizes),
        "train": trained,
        "checkpoint": saved,
        "aims": aims.aims,
    }
    (folder / "mlperf.json").write_text(json.dumps(record, indent=1) + "\n")
    for table in filter(None, tables):
        print("\n".join(table) + "\n")
    if trained:
        print(
            f"Training: {len(sizes)} samples, {sum(sizes) / 1e9:.2f} GB an epoch, one accelerator "
            "that takes 0.323 s for seven."
        )
    if saved:
        print(f"Checkpoints: {saved[0]['bytes'] / 1e6:.0f} MB by two ranks, three of them a run.")
    busy = [run["busy_percent"] for run in runs]
    print(
        "The middle of all rounds, and what it lies between. In the second before a run others "
        f"took {middle(busy):.0f} % ({min(busy)}–{max(busy)}) of the CPUs."
    )
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()))


if __name__ == "__main__":
    main()
