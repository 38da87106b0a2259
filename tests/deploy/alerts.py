#!/usr/bin/env python3
"""Holds alerts and dashboard against what real processes give (lab.py): every panel's query has to return data of a running cluster; no
alert may be about while it is well, those of its troubles (troubles.py) have to come, and each has to fire when series change as its
scenario says (promtool), and no other.

    alerts.py VERBS3 PROMETHEUS ETCD FAKE_VERBS DIR [APISERVER]    PROMETHEUS: the folder of prometheus and promtool; FAKE_VERBS: that of
                                                                   tests/fake-verbs/build.sh; in namespaces of its own (run.sh makes them)

Prints what is wrong and exits 1. What no real process gave here goes to DIR/not-proven."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from lab import ROOT, Lab, wait
from lab_kubernetes import Kubernetes
from troubles import Troubles
from verdict import Broken, judge

RULES = ROOT / "deploy/prometheus/verbs3.rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/verbs3.json"
RUNBOOKS = ROOT / "docs/runbooks"
# What `$__rate_interval` is, where every second counts.
RATE_INTERVAL = "2m"
# What shows nothing in the lab, where no process reaches another over its stand-in of a device, and who else asks for it.
ELSEWHERE = "the pods round rdma asks it, by hand alone"
OVER_DEVICE = {"verbs3_verbs_call_seconds": ELSEWHERE, "verbs3_verbs_rail_lost_total": ELSEWHERE, "verbs3_verbs_send_queue_used": ELSEWHERE,
               "verbs3_verbs_errors_total": "nobody asks it: no soft device gives work up"}
# Minutes of a scenario, and of the one that compares with yesterday.
HOUR, DAY = 120, 1620

Labels = dict[str, str]
Values = str | Callable[[Labels], str]
# What changes: the name of a metric, labels that pick some of its series, and their values from minute 0 on.
Change = tuple[str, Labels, Values]


def calls(labels: Labels) -> str:
    """Calls over tcp that all take longer than 10 ms, and no others."""
    if labels["transport"] != "tcp":
        return "0+0x120"
    return "0+0x120" if labels["le"] != "+Inf" and float(labels["le"]) <= 0.01 else "0+600x120"


STEADY = "0+600x120"
BEGINS = "_x30 1+0x90"
# For each alert: what changes, and how many fire at minute 45 (or another).
SCENARIOS: dict[str, tuple[list[Change], int, int]] = {
    "Verbs3ProcessDown": ([("up", {"instance": "127.0.0.1:9411"}, "1+0x30 0+0x90")], 45, 1),
    "Verbs3RailDown": ([("verbs3_verbs_rail_up", {"instance": "127.0.0.1:9001"}, "1+0x30 0+0x90")], 45, 1),
    "Verbs3PortDown": ([("verbs3_verbs_port_up", {"instance": "127.0.0.1:9001"}, "1+0x30 0+0x90")], 45, 1),
    "Verbs3FallsBackToTcp": ([("verbs3_rdma_fallbacks_total", {"to": "tcp", "instance": "127.0.0.1:9001"}, BEGINS)], 33, 1),
    "Verbs3DataOverTcp": ([("verbs3_client_bytes_total", {"instance": "127.0.0.1:9001", "transport": "tcp"}, STEADY),
                           ("verbs3_client_bytes_total", {"instance": "127.0.0.1:9001", "transport": "shm"}, STEADY)], 45, 1),
    "Verbs3HandshakesFail": ([("verbs3_rdma_handshakes_failed_total", {"reason": "secret"}, BEGINS)], 33, 1),
    "Verbs3SealsRefused": ([("verbs3_verbs_seals_refused_total", {"rail": "mlx5_0/1", "what": "message"}, BEGINS)], 33, 1),
    "Verbs3CallsSlow": ([("verbs3_rdma_call_seconds_bucket", {"instance": "127.0.0.1:9001"}, calls),
                         ("verbs3_read_requests_total", {"cache": "hit"}, STEADY), ("verbs3_read_requests_total", {"cache": "miss"}, "0+0x120")], 45, 1),
    "Verbs3RequestsFail": ([("verbs3_gateway_requests_total", {"op": "GetObject", "status": "5xx"}, "0+0x30 0+60x90"),
                            ("verbs3_gateway_requests_total", {"op": "GetObject", "status": "2xx"}, STEADY)], 45, 1),
    "Verbs3QueueFull": ([("verbs3_gateway_requests_in_flight", {}, "1+0x30 4+0x90"),
                         ("verbs3_disk_queue_bytes", {"instance": "127.0.0.1:9401", "bound": "now"}, "0+0x30 4100000+0x90")], 45, 2),
    "Verbs3QueuePairsScarce": ([("verbs3_verbs_queue_pairs", {"instance": "127.0.0.1:9001"}, "3000+0x30 3400+0x90"),
                               ("verbs3_rdma_queue_pairs_max", {"instance": "127.0.0.1:9001"}, "4096+0x120")], 50, 1),
    "Verbs3SlowDowns": ([("verbs3_read_slow_downs_total", {}, "0+0x30 1+0x90")], 33, 1),
    "Verbs3HitRatioGone": ([("verbs3_read_requests_total", {"cache": "hit"}, "0+600x1500 900000+6x120"),
                            ("verbs3_read_requests_total", {"cache": "miss"}, "0+6x1500 9000+600x120")], 1590, 1),
    "Verbs3Bypasses": ([("verbs3_client_bypasses_total", {"reason": "workers"}, "0+0x20 0+1200x100")], 45, 1),
    "Verbs3ChecksumFailures": ([("verbs3_client_checksum_failures_total", {"instance": "127.0.0.1:9001"}, "0+0x30 1+0x90")], 33, 1),
    "Verbs3ReportsFail": ([("verbs3_client_report_failures_total", {"instance": "127.0.0.1:9001"}, "0+0x30 1+0x90")], 33, 1),
    "Verbs3RelaysFail": ([("verbs3_client_relays_total", {"kind": "announce", "outcome": "away"}, "_x30 1+1x90")], 45, 1),
    "Verbs3Relays": ([("verbs3_client_relays_total", {"kind": "announce", "outcome": "done"}, "_x20 1+1x100")], 45, 1),
    "Verbs3UncertainKeys": ([("verbs3_worker_writes_expired_total", {"instance": "127.0.0.1:9401"}, "0+0x20 0+1x100")], 45, 1),
    "Verbs3OpenWritesGrow": ([("verbs3_worker_open_writes", {"instance": "127.0.0.1:9401"}, "0+100x120")], 45, 1),
    "Verbs3StoreFails": ([("verbs3_ufs_requests_total", {"instance": "127.0.0.1:9401", "outcome": "unreachable"}, STEADY)], 45, 1),
    "Verbs3CircuitOpen": ([("verbs3_ufs_circuit_state", {"ufs": "store", "instance": "127.0.0.1:9401"}, "0+0x30 2+0x90")], 45, 1),
    "Verbs3StoreSilent": ([("verbs3_ufs_reachable", {"ufs": "store", "instance": "127.0.0.1:9001"}, "1+0x30 0+0x90"),
                           ("verbs3_gateway_requests_in_flight", {"instance": "127.0.0.1:9001"}, "1+0x120")], 45, 1),
    "Verbs3UfsAnswersRefused": ([("verbs3_ufs_answers_refused_total", {"ufs": "odd", "instance": "127.0.0.1:9401", "reason": "untrusted"}, BEGINS)], 33, 1),
    "Verbs3UfsThrottled": ([("verbs3_ufs_throttled_total", {"ufs": "store", "instance": "127.0.0.1:9401"}, "0+0x30 1+0x90")], 33, 1),
    # The clock of promtool begins at 0.
    "Verbs3CertificateEnds": ([("verbs3_gateway_tls_certificate_not_after", {}, "864000+0x120")], 45, 1),
    "Verbs3CertificateOver": ([("verbs3_gateway_tls_certificate_not_after", {}, "60+0x120")], 45, 1),
    "Verbs3CertificateRefused": ([("verbs3_gateway_tls_reloads_total", {"outcome": "refused"}, BEGINS)], 33, 1),
    "Verbs3NodeCertificateEnds": ([("verbs3_certificates_not_after", {"instance": "127.0.0.1:9401"}, "864000+0x120")], 45, 1),
    "Verbs3NodeCertificateOver": ([("verbs3_certificates_not_after", {"instance": "127.0.0.1:9401"}, "60+0x120")], 45, 1),
    "Verbs3NodeCertificateRefused": ([("verbs3_certificates_reloads_total", {"outcome": "refused"}, BEGINS)], 33, 1),
    "Verbs3EtcdCertificateEnds": ([("verbs3_coordinator_store_certificate_not_after", {}, "864000+0x120")], 45, 1),
    "Verbs3EtcdCertificateOver": ([("verbs3_coordinator_store_certificate_not_after", {}, "60+0x120")], 45, 1),
    "Verbs3WebhookCertificateEnds": ([("verbs3_webhook_tls_certificate_not_after", {}, "864000+0x120")], 45, 1),
    "Verbs3WebhookCertificateRefused": ([("verbs3_webhook_tls_reloads_total", {"outcome": "refused"}, BEGINS)], 33, 1),
    "Verbs3PodsNotPatched": ([("verbs3_webhook_reviews_total", {"outcome": "malformed"}, BEGINS)], 33, 1),
    "Verbs3ControllerBehind": ([("verbs3_controller_left_out", {}, "0+0x20 3+0x100")], 45, 1),
    "Verbs3NoCoordinatorLeads": ([("verbs3_coordinator_leader", {}, "1+0x30 0+0x90")], 45, 1),
    "Verbs3CoordinatorStoreFails": ([("verbs3_coordinator_store_failures_total", {}, "0+0x30 0+1x90")], 45, 1),
    "Verbs3MapsLost": ([("verbs3_coordinator_maps_lost_total", {}, "0+0x30 1+0x90")], 33, 1),
    "Verbs3WorkerWithoutLease": ([("verbs3_worker_leased", {"instance": "127.0.0.1:9401"}, "1+0x30 0+0x90")], 45, 1),
    "Verbs3WorkerGone": ([("verbs3_coordinator_workers_missing", {}, "0+0x30 1+0x90")], 45, 1),
    "Verbs3PreloadNotDone": ([("verbs3_preload_jobs_ended_total", {"state": "incomplete"}, "0+0x30 1+0x90")], 33, 1),
    "Verbs3DiskFolderDown": ([("verbs3_disk_folder_up", {"instance": "127.0.0.1:9401"}, "1+0x30 0+0x90")], 45, 1),
    "Verbs3DiskFull": ([("verbs3_disk_folder_full", {"instance": "127.0.0.1:9401"}, "0+0x30 1+0x90")], 45, 1),
    "Verbs3DiskErrors": ([("verbs3_disk_errors_total", {"instance": "127.0.0.1:9401", "op": "read", "kind": "missing"}, BEGINS)], 33, 1),
    "Verbs3DiskCorrupt": ([("verbs3_disk_corrupt_total", {"instance": "127.0.0.1:9401", "what": "header"}, "0+0x30 1+0x90")], 33, 1),
}
# Series that the test makes up, with the labels of docs/metrics.md, and why no process of the lab gives them.
MADE = {
    "verbs3_verbs_seals_refused_total": ({}, "it takes a host that sends by RDMA in a peer's name; the code that counts is tried over fake devices (rdma/src/verbs/tests)"),
}
# Of webhook and controller, where there is no API server for them.
OF_KUBERNETES = "no kube-apiserver is built here (tests/testbed/kubernetes.sh)"
MADE_WITHOUT_KUBERNETES = {name: ({}, OF_KUBERNETES) for name in (
    "verbs3_webhook_tls_certificate_not_after", "verbs3_webhook_tls_reloads_total", "verbs3_webhook_reviews_total", "verbs3_controller_left_out")}
# Alerts that rightly come with another.
TOGETHER = {"Verbs3CertificateOver": {"Verbs3CertificateEnds"}, "Verbs3NodeCertificateOver": {"Verbs3NodeCertificateEnds"},
            "Verbs3EtcdCertificateOver": {"Verbs3EtcdCertificateEnds"},
            "Verbs3NoCoordinatorLeads": set(), "Verbs3RelaysFail": set()}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric in docs/metrics.md."""
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(verbs3_\w+)` \| (\w+) \| ([^|]*) \|", text, re.M)
    return {name: (kind, set(filter(None, labels.replace(" ", "").split(",")))) for name, kind, labels in rows}


def series(name: str, labels: Labels) -> str:
    return name + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items())) + "}"


class Base:
    """The series that rules look at, as they were in the lab, and how they go on when nothing happens."""

    def __init__(self, before: dict, after: dict, broken: dict, wanted: set[str], made: dict[str, tuple[Labels, str]]) -> None:
        self.made, self.used = made, set()
        # Series that only what was broken has: they have their labels from there.
        self.found = {key for key in (*before, *broken) if key[0] in wanted}
        self.values: dict[tuple, str] = {}
        for key, value in after.items():
            if key[0] in wanted:
                # A counter goes on as it went, an hour's worth a minute; everything else stays.
                is_counter = key[0].endswith(("_total", "_bucket"))
                self.values[key] = f"{value:g}+{(value - before.get(key, value)) if is_counter else 0:g}x{DAY}"

    def changed(self, changes: list[Change]) -> dict[tuple, str]:
        values = dict(self.values)
        for name, labels, said in changes:
            picked = [key for key in self.found if key[0] == name and labels.items() <= dict(key[1]).items()]
            if not picked and name in self.made:
                described = documented()[name][1]
                made = self.made[name][0] | labels
                self.used.add(name)
                if set(made) - {"instance"} != described:
                    raise Broken(f"{name} has the labels {sorted(described)}, not {sorted(made)}")
                picked = [(name, tuple(sorted((made | {"instance": "127.0.0.1:9001", "job": "verbs3-gateway"}).items())))]
            if not picked:
                raise Broken(f"no process has a series {series(name, labels)}")
            for key in picked:
                values[key] = said(dict(key[1])) if callable(said) else said
        return values


def another_cluster(values: dict[tuple, str]) -> dict[tuple, str]:
    """The series of a cluster besides, which is well: it must not hide what the other one tells. It is in pods, whose instances are nodes:
    a gateway, a worker and a coordinator have one."""
    nodes = {"127.0.0.1:9411": "gpu-02"}
    found = {}
    for (metric, labels), value in values.items():
        said = dict(labels) | {"cluster": "well"}
        said["instance"] = nodes.get(said["instance"], "gpu-01")
        found[metric, tuple(sorted(said.items()))] = value
    return found


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def promtool(folder: Path, tool: Path, base: Base) -> list[str]:
    """A test for each scenario, and one without."""
    wrong = []
    names = {rule["alert"] for rule in rules()}
    if names != set(SCENARIOS):
        wrong.append(f"alerts without a scenario, or the other way round: {sorted(names ^ set(SCENARIOS))}")
    tests = []
    for name, (changes, minute, count) in [("nothing", ([], 60, 0)), *SCENARIOS.items()]:
        try:
            changed = base.changed(changes)
        except Broken as error:
            wrong.append(f"{name}: {error}")
            continue
        values = another_cluster(base.values) | {(metric, (("cluster", "changed"), *labels)): value for (metric, labels), value in changed.items()}
        expected = {} if name == "nothing" else {name: count} | {other: 1 for other in TOGETHER.get(name, set())}
        length = DAY if minute > HOUR else HOUR
        tests.append({
            "name": name,
            "interval": "1m",
            "input_series": [{"series": series(metric, dict(labels)), "values": value.replace(f"x{DAY}", f"x{length}")} for (metric, labels), value in values.items()],
            "promql_expr_test": [{
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": number} for alert, number in sorted(expected.items())],
            }],
        })
    path = folder / "alerts.json"
    path.write_text(json.dumps({"rule_files": [str(RULES.resolve())], "evaluation_interval": "1m", "tests": tests}))
    for command in ([tool / "promtool", "check", "config", RULES.parent / "prometheus.yml"], [tool / "promtool", "test", "rules", path]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            wrong.append(f"{' '.join(map(str, command))}: {done.stdout[-3000:].strip()}{done.stderr[-3000:]}")
    print(f"alerts: {len(tests)} scenarios over {len(base.values)} series of real processes")
    return wrong


def runbooks() -> list[str]:
    """Every alert has a heading in its runbook, every heading an alert; they are short, and in the table of contents."""
    wrong = []
    contents = (ROOT / "docs/SUMMARY.md").read_text(encoding="utf-8")
    there = {}
    for path in sorted(RUNBOOKS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path.name == "index.md":
            wrong += [f"index.md does not name {rule['alert']}" for rule in rules() if f"`{rule['alert']}`" not in text]
            continue
        wrong += [f"{path.name}: {name} is no metric" for name in re.findall(r"\b(verbs3_\w+)", text) if name not in documented()]
        there |= {name: f"docs/runbooks/{path.name}" for name in re.findall(r"^## (Verbs3\w+)$", text, re.M)}
        if len(text.splitlines()) > 60:
            wrong.append(f"{path.name} has more than 60 lines")
        for heading in ("## How to look", "## What to do"):
            if heading not in text:
                wrong.append(f"{path.name} has no {heading!r}")
        if f"runbooks/{path.name}" not in contents:
            wrong.append(f"{path.name} is not in docs/SUMMARY.md")
    named = {rule["alert"]: rule["annotations"].get("runbook_url") for rule in rules()}
    wrong += [f"{name}: its runbook is {named.get(name)}, and it is explained in {there.get(name)}" for name in sorted(named | there) if named.get(name) != there.get(name)]
    for rule in rules():
        if rule["labels"].get("severity") not in ("page", "ticket") or not {"summary", "action"} <= set(rule["annotations"]):
            wrong.append(f"{rule['alert']} has no severity, summary or action")
    return wrong


def addressees() -> list[str]:
    """Alerts that alertmanager.yml names and that are none, and severities that nobody hears of."""
    text = (RULES.parent / "alertmanager.yml").read_text(encoding="utf-8")
    said = yaml.safe_load(text)
    names = {rule["alert"] for rule in rules()}
    wrong = [f"alertmanager.yml: {name} is no alert" for name in set(re.findall(r"Verbs3\w+", text)) - names]
    receivers = {one["name"] for one in said["receivers"]}
    routes = [said["route"], *said["route"]["routes"]]
    wrong += [f"alertmanager.yml: nobody is {route['receiver']}" for route in routes if route["receiver"] not in receivers]
    return wrong


def states(lab: Lab) -> dict[str, str]:
    """Alerts that fire, or wait for their time."""
    return {alert["labels"]["alertname"]: alert["state"] for alert in lab.alerts()}


def has_data(lab: Lab, expression: str) -> bool:
    """Whether a panel shows something: a part of nothing is no number."""
    return any(sample["value"][1] != "NaN" for sample in lab.ask(expression))


def panels(lab: Lab) -> dict[str, str]:
    """Queries of the dashboard that return nothing, and their panels."""
    empty, count = {}, 0
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", RATE_INTERVAL).replace("$cluster", ".*")
            count += 1
            if not has_data(lab, expression):
                empty[expression] = panel["title"]
    print(f"alerts: {count} queries of the dashboard asked, {len(empty)} without data while all is well")
    return empty


def drop_filled(lab: Lab, empty: dict[str, str]) -> None:
    for expression in [one for one in empty if has_data(lab, one)]:
        del empty[expression]


def run_troubles(lab: Lab, troubles: Troubles, empty: dict[str, str]) -> tuple[list[str], dict]:
    """Each trouble, with the alerts that it has to lead to; EMPTY loses what returns data meanwhile. What is wrong, and every series."""
    wrong, series_seen, seen = [], {}, {}
    for trouble in troubles.in_order():
        what = trouble.begin.__name__
        missing = trouble.alerts & set(states(lab))
        wrong += [f"{name} is about before {what}" for name in missing]
        began = time.monotonic()
        trouble.begin()

        now: dict[str, str] = {}

        def are_about() -> bool:
            now.update(states(lab))
            return trouble.alerts <= set(now)

        try:
            wait(f"{what}: alerts", are_about)
        except Broken:
            wrong.append(f"{what} leads to no {sorted(trouble.alerts - set(now))}")
        seen |= now
        series_seen |= lab.everything()
        drop_filled(lab, empty)
        for alert in lab.alerts():
            if "<error" in alert["annotations"]["summary"] or "no value" in alert["annotations"]["summary"]:
                wrong.append(f"{alert['labels']['alertname']}: {alert['annotations']['summary']}")
        print(f"alerts: {what}: {' '.join(sorted(trouble.alerts & set(now))) or 'no alert'}, after {time.monotonic() - began:.0f} s", flush=True)
    names = [rule["alert"] for rule in rules()]
    print(f"alerts: {len(seen)} of {len(names)} were about in the lab, {sum(1 for one in seen.values() if one == 'firing')} of them fired;"
          f" by changed series alone: {' '.join(name for name in names if name not in seen)}")
    return wrong, series_seen


def main(verbs3: Path, prometheus: Path, etcd: Path, fake_verbs: Path, folder: Path, api_server: Path | None = None) -> list[str]:
    wrong = runbooks() + addressees()
    wanted = set(re.findall(r"\b(verbs3_\w+)", RULES.read_text())) | {"up"}
    lab = Lab(verbs3, prometheus, etcd, fake_verbs, folder)
    kubernetes = None
    try:
        kubernetes = Kubernetes(lab, etcd, api_server) if api_server else None
        lab.collect()
        lab.use(range(12))
        before = lab.everything()
        lab.use(range(12, 40))
        if kubernetes:
            kubernetes.use()
        lab.preload("s3://demo/lab/")
        wait("a scrape of all this", lambda: lab.ask("sum(increase(verbs3_preload_jobs_ended_total[2m])) > 0"))
        empty = panels(lab)
        after = lab.everything()
        if states(lab):
            wrong.append(f"alerts of a cluster that is well: {states(lab)}")
        found, broken = run_troubles(lab, Troubles(lab, kubernetes), empty)
        wrong += found
    finally:
        lab.end()
        if kubernetes:
            kubernetes.end()
    unproven: list[str] = []
    for expression, title in empty.items():
        why = [f"{name}: {why}" for name, why in OVER_DEVICE.items() if name in expression]
        if why:
            unproven += {f"panel {title!r}, of calls over RDMA: {why[0]}"} - set(unproven)
        else:
            wrong.append(f"panel {title!r}: no data: {expression}")
    left = [name for name in OVER_DEVICE if not any(name in expression for expression in empty)]
    wrong += [f"{name} has data here: take it out of OVER_DEVICE" for name in left]
    base = Base(before, after, broken, wanted, MADE | ({} if kubernetes else MADE_WITHOUT_KUBERNETES))
    wrong += promtool(folder, prometheus, base)
    wrong += [f"{name} has series of real processes: take it out of MADE" for name in sorted(set(base.made) - base.used)]
    unproven += [f"alerts over {name}, whose series were made up: {base.made[name][1]}" for name in sorted(base.used)]
    if unproven:
        print("".join(f"NOT PROVEN: {one}\n" for one in unproven), end="")
        (folder / "not-proven").write_text("".join(f"{one}\n" for one in unproven))
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 5, 6)
