#!/usr/bin/env python3
"""Whether the rate of many nodes grows with their number: clients on 1, 2, … nodes, workers on the same, each reads everything. Nodes are
namespaces of this machine with a wire each, made so narrow that wires and not the few cores are the limit.

    loadtest/nodes.py DIR [--nodes 3] [--mbit 400] [--replicas 1] [--rounds 3] [--seconds 10]

Wants root. By `verbs3 bench s3 many-hosts --agents`, whose `ssh` is one that enters a namespace. DIR keeps what it printed and the logs.
Fails on an error, a wrong byte, or bytes between nodes by anything but the wires. Without VERBS3_PROFILE it wants a release build.
Owns no measuring: a real cluster is asked by the same command (docs/fabric/measuring.md)."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/kubernetes"))

from one_machine import BRIDGE, HUB, Machine, address_of, ip, make_bridge  # noqa: E402

KEYS = {"AWS_ACCESS_KEY_ID": "VERBS3NODES", "AWS_SECRET_ACCESS_KEY": "verbs3-nodes-secret-key"}
STORE_PORT, GATEWAY_PORT, ADMIN_PORT, WORKER_PORT = 9000, 9000, 9001, 9400
BUCKET = "nodes"
READY_WAIT = 60
# Enters the namespaces of a host: what `ssh -T OPTIONS -- HOST COMMAND` does between real ones.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
exec nsenter --target "$(cat {folder}/$2.pid)" --mount --uts --net --pid -- sh -c "$3"
"""
STORE = """
dev = {{ dir = "{folder}/store", demo = false }}
worker = {{ memory = {{ capacity = "64MiB" }} }}
[gateway]
listen = "{hub}:{port}"
admin_listen = "127.0.0.1:0"
memory = {{ capacity = "64MiB" }}
identities = "{folder}/identities.toml"
"""
SHARED = """
[cluster]
name = "nodes"
secret = "a secret of the load tests, long enough"
workers_fixed = true
workers = [{workers}]
replicas = {replicas}
[[ufs]]
name = "store"
endpoint = "http://{hub}:{port}"
credentials = {{ kind = "static", access_key_id = "{AWS_ACCESS_KEY_ID}", secret_access_key = "{AWS_SECRET_ACCESS_KEY}" }}
[[mount]]
name = "*"
ufs = "store"
attributes_ttl = "1h"
"""
IDENTITIES = """
[[identity]]
name = "nodes"
access_key = "{AWS_ACCESS_KEY_ID}"
secret_key = "{AWS_SECRET_ACCESS_KEY}"
allow = [{{ mount = "*", rights = ["read", "write", "list", "delete", "admin"] }}]
"""
WORKER = """
[worker]
id = "{name}"
listen = "{address}:{port}"
admin_listen = "127.0.0.1:0"
memory = {{ capacity = "1GiB" }}
"""
GATEWAY = """
[gateway]
listen = "127.0.0.1:{port}"
admin_listen = "{address}:{admin}"
memory = {{ capacity = "256MiB" }}
identities = "{folder}/identities.toml"
"""


class Nodes:
    """So many namespaces, each with a worker and a gateway, in front of a store on the hub."""

    def __init__(self, said: argparse.Namespace, folder: Path):
        self.said, self.folder = said, folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.started: list[subprocess.Popen] = []
        self.machines: list[Machine] = []

    def start(self, count: int) -> None:
        folder = self.folder
        (folder / "identities.toml").write_text(IDENTITIES.format(**KEYS))
        (folder / "ssh").write_text(SSH.format(folder=folder))
        (folder / "ssh").chmod(0o755)
        self.launch("store", [], "dev", STORE.format(folder=folder, hub=HUB, port=STORE_PORT))
        for number in range(1, count + 1):
            self.machines.append(self.make_machine(number))
        workers = ", ".join(f'{{ id = "{one.name}", address = "{one.address}:{WORKER_PORT}" }}' for one in self.machines)
        shared = SHARED.format(workers=workers, replicas=self.said.replicas, hub=HUB, port=STORE_PORT, **KEYS)
        for one in self.machines:
            inside = one.inside([])
            self.launch(f"worker-{one.name}", inside, "worker", shared + WORKER.format(name=one.name, address=one.address, port=WORKER_PORT))
            self.launch(f"gateway-{one.name}", inside, "gateway",
                        shared + GATEWAY.format(address=one.address, port=GATEWAY_PORT, admin=ADMIN_PORT, folder=folder))
            self.await_ready(one)

    def make_machine(self, number: int) -> Machine:
        machine = Machine(number, self.folder / f"n{number}.log", ["sleep", "infinity"])
        # Workers' sockets are in /run: nodes don't see each other's.
        for words in (["mount", "-t", "tmpfs", "tmpfs", "/run"], ["ip", "link", "set", "lo", "up"],
                      ["ip", "addr", "add", f"{address_of(number)}/24", "dev", "eth0"], ["ip", "link", "set", "eth0", "up"],
                      self.narrow("eth0")):
            subprocess.run(machine.inside(words), check=True)
        subprocess.run(self.narrow(f"v{number}"), check=True)
        (self.folder / f"{machine.name}.pid").write_text(str(machine.inner))
        return machine

    def narrow(self, device: str) -> list[str]:
        return f"tc qdisc add dev {device} root tbf rate {self.said.mbit}mbit burst 512k latency 20ms".split()

    def launch(self, name: str, inside: list[str], role: str, text: str) -> None:
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        with (self.folder / f"{name}.log").open("w") as log:
            words = [*inside, str(self.said.verbs3), role, "--config", str(path)]
            self.started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def await_ready(self, machine: Machine) -> None:
        end = time.monotonic() + READY_WAIT
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://{machine.address}:{ADMIN_PORT}/readyz", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"nodes: the gateway of {machine.name} is not ready after {READY_WAIT} s; its log is in {self.folder}")

    def client_bytes(self) -> dict[str, float]:
        """What gateways have had from workers, by transport."""
        found: dict[str, float] = {}
        for machine in self.machines:
            with urllib.request.urlopen(f"http://{machine.address}:{ADMIN_PORT}/metrics", timeout=5) as answer:
                for transport, value in re.findall(r'^verbs3_client_bytes_total\{.*transport="(\w+)".*\} (\S+)$', answer.read().decode(), re.M):
                    found[transport] = found.get(transport, 0) + float(value)
        return {transport: count for transport, count in found.items() if count}

    def measure(self) -> dict:
        environment = os.environ | KEYS | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        hosts = ",".join(one.name for one in self.machines)
        endpoint = f"http://127.0.0.1:{GATEWAY_PORT}/{BUCKET}"
        subprocess.run(["curl", "-fsS", "-o", "/dev/null", "-X", "PUT", "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", ":".join(KEYS.values()),
                        "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", f"http://{HUB}:{STORE_PORT}/{BUCKET}"], check=True)
        with (self.folder / "bench.err").open("w") as errors:
            told = subprocess.run([self.said.verbs3, "bench", "s3", "many-hosts", "--target", endpoint, "--agents", hosts, "--remote-program", self.said.verbs3,
                                   "--rounds", str(self.said.rounds), "--time", f"{self.said.seconds}s", "--json"], env=environment, stdout=subprocess.PIPE, stderr=errors)
        if told.returncode:
            raise SystemExit(f"nodes: the load failed:\n{(self.folder / 'bench.err').read_text()}")
        (self.folder / "bench.json").write_bytes(told.stdout)
        return json.loads(told.stdout)

    def end(self) -> None:
        for process in reversed(self.started):
            # On a node its parent is nsenter, which ends with it, and would leave it behind.
            if process.poll() is not None:
                continue
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            inside = [int(child) for child in children.read_text().split()] if process.args[0] == "nsenter" else []
            for one in inside or [process.pid]:
                os.kill(one, signal.SIGTERM)
            process.wait()
        for machine in self.machines:
            machine.outer.kill()
            machine.outer.wait()
            # What agents left behind is this process', as the first of its namespace, and a node ends after all that ran on it.
            while os.waitpid(-1, 0)[0] != machine.inner:
                pass
            # The wire's other end goes with it, by and by.
            subprocess.run(["ip", "link", "del", f"v{machine.number}"], stderr=subprocess.DEVNULL)


def try_nodes(count: int, said: argparse.Namespace) -> str:
    nodes = Nodes(said, said.dir / f"nodes-{count}")
    try:
        nodes.start(count)
        record = nodes.measure()
        by_transport = nodes.client_bytes()
    finally:
        nodes.end()
    side = record["sides"][0]
    if side["all"]["wrong_answers"] or side["all"]["errors"]:
        raise SystemExit(f"nodes: {count}: {side['all']['wrong_answers']} wrong answers, errors {side['all']['errors']}")
    if not by_transport or not set(by_transport) <= {"shm", "tcp"}:
        raise SystemExit(f"nodes: {count}: bytes came by {by_transport}")
    rates = sorted(one["mib_per_second"] for one in side["rounds"])
    rate, remote = rates[len(rates) // 2], by_transport.get("tcp", 0) / sum(by_transport.values())
    # What wires carry each way, if each node asks each other one for the same. A block's replica on the node itself is asked first.
    elsewhere = count - said.replicas
    bound = count * said.mbit / 8 * 1e6 / (1 << 20) * count / elsewhere if elsewhere > 0 else None
    of_bound = f"{rate / bound:7.2f}" if bound else "      -"
    return f"{count:5} {rate:9.0f} {rates[0]:8.0f} {rates[-1]:8.0f} {remote:9.2f} {f'{bound:.0f}' if bound else '-':>10} {of_bound}   {', '.join(record['limits']) or '-'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--mbit", type=int, default=400)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    said = parser.parse_args()
    said.dir.mkdir(parents=True, exist_ok=True)
    said.dir = said.dir.resolve()
    profile = os.environ.get("VERBS3_PROFILE", "release")
    said.verbs3 = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), profile, "verbs3").resolve())
    if not Path(said.verbs3).exists():
        raise SystemExit(f"nodes: {said.verbs3} is missing: cargo build --profile {profile} --workspace")
    if os.environ.get("VERBS3_INSIDE") != "nodes":
        own = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        os.execvpe("unshare", [*own, sys.executable, *sys.argv], os.environ | {"VERBS3_INSIDE": "nodes"})
    make_bridge(0)
    print(f"wires of {said.mbit} Mbit/s each way, {said.replicas} workers for each block, on {os.cpu_count()} cores\n\nnodes     MiB/s      min      max  by wires  wires bear of them   limits", flush=True)
    for count in range(1, said.nodes + 1):
        print(try_nodes(count, said), flush=True)


if __name__ == "__main__":
    main()
