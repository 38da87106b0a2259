#!/usr/bin/env python3
"""Holds the names in guides against the references that are made from the code: settings, metrics, alerts.

    tests/readability/check_names.py        one line for each that is none, as FILE:LINE: …; exits 1 if there is one

Looked at is every committed document of docs/ and deploy/ that people write, and what deploy/ installs. A setting is a path in backticks whose first word is a
section (`verbs.tos`); a metric any `verbs3_…`, also as the beginning of several (`verbs3_disk_…`); an alert any `Verbs3…`. Functions and
types of the interface for C are named like metrics and alerts."""

import re
import subprocess
import sys
from pathlib import Path

from check_settings import written_paths
from measure import GENERATED_DOCUMENTS

ROOT = Path(__file__).resolve().parents[2]
METRICS = ROOT / "docs/metrics.md"
RULES = ROOT / "deploy/prometheus/verbs3.rules.yaml"
HEADER = ROOT / "gateway/lending/c/include/verbs3.h"
# Values of the chart in the sections of settings.
CHART_VALUES = {"webhook.enabled", "controller.enabled"}
FILES = (".yaml", ".toml", ".json", ".md", ".rs")
# Made from the code, or about names that are gone.
PASSED_OVER = (*GENERATED_DOCUMENTS, "docs/decisions/")


def documents() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "docs/*.md", *(f"deploy/*.{ending}" for ending in ("md", "yaml", "sh", "json"))]
    names = subprocess.check_output(command, cwd=ROOT, text=True).split()
    return [name for name in names if not name.startswith(PASSED_OVER)]


def strange_names(text: str, settings: set[str], metrics: set[str], alerts: set[str]):
    """Each name that no reference has, with its line."""
    sections = {path.split(".")[0] for path in settings}
    for line, words in enumerate(text.splitlines(), 1):
        for name in re.findall(r"`((?:[a-z0-9_]+\.)+[a-z0-9_]+)(?: = [^`]*)?`", words):
            # The chart has `webhook.settings.region`: tests/deploy/charts.py holds its names.
            setting = re.sub(r"^(webhook|controller)\.settings\.", r"\1.", name)
            if name.split(".")[0] in sections and setting not in settings | CHART_VALUES and not name.endswith(FILES):
                yield line, f"{name} is no setting"
        for name in re.findall(r"\bverbs3_[a-z0-9_]+", words):
            plain = re.sub(r"_bucket$", "", name)
            if plain not in metrics and not any(metric.startswith(name) for metric in metrics):
                yield line, f"{name} is no metric, and no function for C"
        for name in re.findall(r"\bVerbs3[A-Z]\w+", words):
            if name not in alerts:
                yield line, f"{name} is no alert, and no type for C"


def prove():
    """Each kind of name is noticed, or all of this says nothing."""
    text = "`verbs.tos` verbs3_up_total Verbs3Down `verbs.tops`\nverbs3_down_total Verbs3Gone verbs3_up_"
    found = list(strange_names(text, {"verbs.tos"}, {"verbs3_up_total"}, {"Verbs3Down"}))
    assert found == [(1, "verbs.tops is no setting"), 
                     (2, "verbs3_down_total is no metric, and no function for C"), (2, "Verbs3Gone is no alert, and no type for C")], found


def main() -> int:
    prove()
    metrics = set(re.findall(r"^\| `(verbs3_\w+)`", METRICS.read_text(encoding="utf-8"), re.MULTILINE))
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
    header = HEADER.read_text(encoding="utf-8")
    functions, types = set(re.findall(r"\b(verbs3_\w+)\(", header)), set(re.findall(r"\b(Verbs3\w+)", header))
    read = documents()
    settings = written_paths()
    wrong = [f"{path}:{line}: {what}" for path in read for line, what in strange_names((ROOT / path).read_text(encoding="utf-8"), settings, metrics | functions, alerts | types)]
    print("\n".join([*wrong, f"{len(read)} documents, {len(metrics)} metrics, {len(alerts)} alerts, {len(wrong)} names that are none"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
