#!/usr/bin/env python3
"""Owns the table of a vm-perftest.sh run: medians and their spread, other tools' figures beside the reference's.

    perftest_table.py LINES [--json OUT] [--at-least TOOL=RATIO ...]

`--at-least verbs3=0.9` fails (1) unless every bandwidth of that tool reaches the ratio of ib_write_bw's median at the
same device and size, and unless there is one. Deliberately not here: how the figures are made.
"""
import argparse
import json
import statistics
import sys

REFERENCE = {"mib_per_s": "ib_write_bw", "us": "ib_send_lat"}


def series(lines):
    """{(hosts, kind, mtu, device, bytes, unit, tool): [value of each round]}

    perftest's clock sometimes fails under emulation, and the figure is 0: such rounds are left out, and said.
    """
    found = {}
    for line in lines:
        for unit in REFERENCE:
            if unit not in line:
                continue
            if line[unit] is None:
                sys.exit(f"perftest_table: no figure in {line}")
            key = tuple(line[name] for name in ("hosts", "kind", "mtu", "device", "bytes")) + (unit, line["tool"])
            if line[unit] <= 0:
                print(f"perftest_table: left out, no figure: {line}", file=sys.stderr)
                continue
            found.setdefault(key, []).append(line[unit])
    return found


def summary(found):
    rows = []
    for key, values in sorted(found.items(), key=lambda item: (item[0][:4], item[0][5], item[0][4], item[0][6])):
        median = statistics.median(values)
        reference = found.get(key[:6] + (REFERENCE[key[5]],))
        ratio = median / statistics.median(reference) if reference and key[6] != REFERENCE[key[5]] else None
        rows.append({
            **dict(zip(("hosts", "kind", "mtu", "device", "bytes", "unit", "tool"), key)),
            "rounds": len(values), "median": median, "min": min(values), "max": max(values),
            "spread": (max(values) - min(values)) / median, "ratio": ratio,
        })
    return rows


def show(rows):
    print(f"{'hosts':5} {'device':7} {'mtu':>5} {'tool':14} {'bytes':>8} {'unit':>9} {'median':>9} {'min':>9} {'max':>9} {'spread':>7} {'ratio':>6}")
    for row in rows:
        ratio = f"{row['ratio']:6.2f}" if row["ratio"] is not None else "     -"
        print(f"{row['hosts']:<5} {row['device']:7} {row['mtu']:>5} {row['tool']:14} {row['bytes']:>8} {row['unit'].replace('mib_per_s', 'MiB/s'):>9} "
              f"{row['median']:9.1f} {row['min']:9.1f} {row['max']:9.1f} {row['spread']:7.0%} {ratio}")


def unmet(rows, wanted):
    tool, ratio = wanted.split("=")
    mine = [row for row in rows if row["tool"] == tool and row["unit"] == "mib_per_s"]
    if not mine:
        return [f"{tool} has no bandwidth in this run"]
    return [f"{tool} at {row['bytes']} bytes on {row['device']}: {row['ratio'] or 0:.2f} of ib_write_bw, at least {ratio} is wanted"
            for row in mine if (row["ratio"] or 0) < float(ratio)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines")
    parser.add_argument("--json")
    parser.add_argument("--at-least", action="append", default=[], metavar="TOOL=RATIO")
    arguments = parser.parse_args()
    with open(arguments.lines, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    if not lines:
        sys.exit(f"perftest_table: {arguments.lines} is empty")
    rows = summary(series(lines))
    show(rows)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    problems = [text for wanted in arguments.at_least for text in unmet(rows, wanted)]
    for text in problems:
        print(f"perftest_table: {text}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
