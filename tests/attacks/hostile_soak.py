#!/usr/bin/env python3
"""All attacks at once beside honest clients, for as long as is wanted; says what honest clients got, and what the processes held.

    hostile_soak.py MINUTES [DIR]      a minute without attacks comes first, to compare with; DIR takes logs and report.json

Run by tests/attacks/run.sh soak MINUTES. Exits 1 if an honest client was refused, or turned away after seconds, a process ended or went
over its bound on memory, or a request was accepted whose signature does not hold. SEED=N repeats the choices.
"""

import collections
import json
import os
import random
import resource
import ssl
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import oracle  # noqa: E402
import test_coordinator  # noqa: E402
import test_documents  # noqa: E402
import test_paths  # noqa: E402
import test_rights  # noqa: E402
import test_signatures_oracle  # noqa: E402
import test_smuggling  # noqa: E402
import test_strangers  # noqa: E402
import test_worker  # noqa: E402
from asked_store import AskedStore  # noqa: E402
from honest import HonestClient, HonestMark  # noqa: E402
from lines import Line, Peer, new_address, signed_form  # noqa: E402
from processes import HONEST, MIB, OWNER, SECRET, WARMER, WRITER, Cluster, find_binary, memory_bound, metric  # noqa: E402

SEED = int(os.environ.get("SEED") or random.randrange(2**32))
BASELINE_SECONDS = float(os.environ.get("SOAK_BASELINE_SECONDS", "60"))
# How long a held crowd is watched before the next one comes.
HOLD_SECONDS = 6


class Soak:
    """The attacks; each is called over and over by a thread of its own, with an address of its own."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.stopped = threading.Event()
        self.counts: collections.Counter[str] = collections.Counter()
        self.findings: list[str] = []
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def wrap(self, plain):
        return self.context.wrap_socket(plain, server_hostname="localhost")

    def run(self, attack, seed: int):
        choice, address = random.Random(seed), new_address()
        while not self.stopped.is_set():
            try:
                self.counts[attack.__name__] += attack(choice, address) or 1
            except (OSError, ValueError):
                self.counts[f"{attack.__name__}: turned away"] += 1
            except Exception as error:  # noqa: BLE001 - an attacker that breaks would attack no more
                self.findings.append(f"{attack.__name__}: {type(error).__name__} {error}"[:500])
            self.stopped.wait(0.02)

    def hold(self, port: int, address: str, opening: bytes, count: int, again: bytes = b"") -> int:
        lines = []
        try:
            for _ in range(count):
                lines.append(Line(port, address))
                lines[-1].say(opening)
            end = time.monotonic() + HOLD_SECONDS
            left = list(lines)
            while left and time.monotonic() < end and not self.stopped.is_set():
                left = [line for line in left if (not again or line.say(again)) and not line.is_closed()]
                self.stopped.wait(0.2)
        finally:
            for line in lines:
                line.close()
        return count

    # ---- strangers

    def silent_crowd(self, choice, address):
        return self.hold(self.cluster.gateway.port, address, choice.choice(list(test_strangers.OPENINGS.values())), 80)

    def crowd_of_addresses(self, choice, address):
        return self.hold(self.cluster.gateway.port, new_address(), choice.choice(list(test_strangers.OPENINGS.values())), 120)

    def renewing_strangers(self, choice, address):
        opening, again = choice.choice(list(test_strangers.RENEWALS.values()))
        return self.hold(self.cluster.gateway.port, address, opening, 10, again)

    def half_handshakes(self, choice, address):
        return self.hold(
            self.cluster.tls.port,
            address,
            choice.choice([b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x40\x00" + b"\0" * 500, b"GET / HTTP/1.1\r\n"]),
            60,
        )

    def whole_handshakes(self, choice, address):
        for _ in range(5):
            Line(self.cluster.tls.port, address, self.wrap).close()
        self.stopped.wait(1)
        return 5

    def frames_of_http2(self, choice, address):
        test_strangers.flood_http2(
            self.cluster.gateway.port, address, 1, choice.choice(["resets", "pings", "settings", "continuations", "bomb"])
        )
        self.stopped.wait(3)

    def admin_strangers(self, choice, address):
        process = choice.choice([self.cluster.gateway, self.cluster.worker, self.cluster.coordinator])
        return self.hold(process.admin, address, choice.choice([b"", b"GET /healthz HT", b"GET /metrics HTTP/1.1\r\nx: y\r\n"]), 30)

    def coordinator_strangers(self, choice, address):
        return self.hold(
            self.cluster.coordinator.port,
            address,
            choice.choice([b"", b"GET /v1/map HT", b"POST /v1/workers HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n"]),
            40,
        )

    def coordinator_proofs(self, choice, address):
        port = self.cluster.coordinator.port
        method, path = choice.choice(test_coordinator.ROUTES)
        name = test_coordinator.recipient(port)
        proof = choice.choice(
            [
                None,
                "x",
                test_coordinator.proof(method, path, b"", name, secret="another secret of 16"),
                test_coordinator.proof(method, path, b"", "0" * 32),
            ]
        )
        answer = test_coordinator.ask(port, method, path, header=proof, source=address)
        if answer.status not in (0, 401):
            self.findings.append(f"a coordinator answered {answer.status} to {method} {path} without proof")
        self.stopped.wait(0.1)

    def worker_strangers(self, choice, address):
        return self.hold(self.cluster.worker.port, address, choice.choice(list(test_worker.GARBAGE.values())), 10)

    def hostile_peers(self, choice, address):
        with Line(self.cluster.worker.port, address) as line:
            line.socket.settimeout(2)
            if test_worker.shake(line, SECRET) == test_worker.WELCOME:
                line.say(choice.choice(list(test_worker.HOSTILE.values())))
                self.stopped.wait(0.3)

    # ---- signed requests, and what is made of them

    def changed_signatures(self, choice, address):
        peer = Peer(self.cluster.gateway.port, source=address)
        maker, judge, line = test_signatures_oracle.Maker(peer, choice.randrange(2**32)), test_signatures_oracle.JUDGE, None
        for _ in range(50):
            request, change = maker.change(maker.make())
            answer, line = test_signatures_oracle.send(line, peer, request)
            accepted = answer.status != 0 and answer.status not in test_signatures_oracle.REFUSED
            if accepted and judge.why_not(request) and not judge.holds_by(request, oracle.LOOSE):
                self.findings.append(f"accepted, though it does not hold: {change}: {request.wire()[:1500]!r}")
            self.stopped.wait(0.02)
        if line:
            line.close()
        return 50

    def framings(self, choice, address):
        peer = Peer(self.cluster.gateway.port, source=address)
        signed = peer.signed("PUT", "/data/soak/framing", payload="UNSIGNED-PAYLOAD", framed=True)
        framing = choice.choice(list(test_smuggling.FRAMINGS.values())).encode("latin-1")
        with peer.line() as line:
            line.say(signed.wire()[:-2] + framing + b"\r\n\r\n0\r\n\r\n" + peer.signed("DELETE", "/data/soak/kept").wire())
            if 204 in test_smuggling.count_answers(line):
                self.findings.append(f"smuggled by {framing!r}")
        self.stopped.wait(0.1)

    def paths(self, choice, address):
        peer = Peer(choice.choice([self.cluster.gateway, self.cluster.shop]).port, source=address)
        for request in test_paths.both_ways(peer, choice.choice(["GET", "DELETE"]), f"/part/{choice.choice(test_paths.TRICKS)}", b""):
            peer.send(request)
        self.stopped.wait(0.1)

    def bombs(self, choice, address):
        bomb, (method, path, query, root) = (
            choice.choice(list(test_documents.BOMBS.values())),
            choice.choice(list(test_documents.PLACES.values())),
        )
        body = (bomb.format(root) if "{0}" in bomb else bomb).encode("utf-8", "surrogateescape")
        Peer(self.cluster.gateway.port, source=address).call(
            method, path, query=query, body=body, headers={"content-md5": test_documents.md5(body)}
        )
        self.stopped.wait(1)

    def wrong_promises(self, choice, address):
        peer = Peer(self.cluster.gateway.port, source=address)
        answer = peer.call(
            "PUT", "/data/soak/promised", body=test_documents.DATA, headers=choice.choice(list(test_documents.WRONG.values()))
        )
        if answer.status != 400:
            self.findings.append(f"a wrong promise got {answer.verdict}")
        self.stopped.wait(0.1)

    def limited_keys(self, choice, address):
        writer = Peer(self.cluster.gateway.port, WRITER, address)
        method, query, headers, body = choice.choice(test_rights.MORE_THAN_WRITES)
        if body:
            headers = headers | {"content-md5": test_rights.md5(body)}
        make = choice.choice([writer.signed, writer.presigned])
        answer = writer.send(make(method, "/asked/mine/x", query=query, headers=headers, body=body))
        if answer.status not in (0, 400, 403, 503):
            self.findings.append(f"a writer did more than write: {method} {query} {headers}: {answer.verdict}")
        self.stopped.wait(0.1)

    def changed_forms(self, choice, address):
        peer = Peer(self.cluster.gateway.port, HONEST, address)
        whole = bytearray(signed_form(HONEST, peer.host, "soak/form", body=b"f"))
        signature = whole.index(b"x-amz-signature") + len(b'x-amz-signature"\r\n\r\n')
        at = choice.randrange(signature, signature + 64)
        whole[at] = ord("0") if whole[at] != ord("0") else ord("1")
        with peer.line() as line:
            line.say(bytes(whole))
            answer = line.read_answer()
        if answer.status not in (0, 403, 503):
            self.findings.append(f"a form with another signature got {answer.verdict}")
        self.stopped.wait(0.1)

    def preload_jobs(self, choice, address):
        warmer, name = Peer(self.cluster.gateway.port, WARMER, address), f"soak-{choice.randrange(2**32):x}"
        job = {"prefixes": [choice.choice(["s3://data/warm/", "s3://data/", "s3://asked/"])], "id": name}
        status, _ = test_rights.preload(warmer, "POST", job=job)
        if 200 <= status < 300 and job["prefixes"] != ["s3://data/warm/"]:
            self.findings.append(f"a job that its sender may not begin got {status}: {job}")
        test_rights.preload(warmer, "DELETE", f"/v1/preload/{name}")
        self.stopped.wait(0.3)

    def notifications(self, choice, address):
        for _ in range(20):
            test_coordinator.notify(self.cluster.coordinator.port, f"soak/{choice.randrange(2**32):x}", address)
        self.stopped.wait(0.5)
        return 20

    def heard_proofs(self, choice, address):
        port, path, body = self.cluster.coordinator.port, "/v1/invalidate", b'{"paths": ["s3://data/soak/nothing"]}'
        heard = test_coordinator.proof("POST", path, body, test_coordinator.recipient(port))
        first = test_coordinator.ask(port, "POST", path, body, heard, source=address).status
        again = test_coordinator.ask(port, "POST", path, body, heard, source=address).status
        if first == 200 and again not in (0, 401):
            self.findings.append(f"a proof that was used got {again}")
        self.stopped.wait(0.2)

    def crowd_of_one_identity(self, choice, address):
        """A request on each connection, again and again, so that none is ever idle for long."""
        wire = Peer(self.cluster.gateway.port, OWNER, address).signed("HEAD", "/data/soak/none").wire()
        return self.hold(self.cluster.gateway.port, address, wire, 150, wire)

    def slow_uploads(self, choice, address):
        peer, lines = Peer(self.cluster.gateway.port, OWNER, address), []
        try:
            for number in range(60):
                lines.append(peer.line())
                lines[-1].say(
                    peer.signed(
                        "PUT", f"/data/soak/slow-{number}", headers={"content-length": "1000000"}, payload="UNSIGNED-PAYLOAD"
                    ).wire()
                )
            end = time.monotonic() + HOLD_SECONDS
            while time.monotonic() < end and not self.stopped.is_set():
                for line in lines:
                    line.say(b"a")
                self.stopped.wait(0.3)
        finally:
            for line in lines:
                line.close()
        return 60

    def untaken_answers(self, choice, address):
        peer, lines = Peer(self.cluster.gateway.port, OWNER, address), []
        try:
            for _ in range(12):
                lines.append(peer.line())
                lines[-1].say(peer.signed("GET", "/data/soak/large").wire())
            self.stopped.wait(HOLD_SECONDS)
        finally:
            for line in lines:
                line.close()
        return 12

    ATTACKS = [
        silent_crowd,
        crowd_of_addresses,
        renewing_strangers,
        half_handshakes,
        whole_handshakes,
        frames_of_http2,
        admin_strangers,
        coordinator_strangers,
        coordinator_proofs,
        worker_strangers,
        hostile_peers,
        changed_signatures,
        framings,
        paths,
        bombs,
        wrong_promises,
        limited_keys,
        changed_forms,
        preload_jobs,
        notifications,
        heard_proofs,
        crowd_of_one_identity,
        slow_uploads,
        untaken_answers,
    ]


def quantiles(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    at = lambda part: ordered[min(len(ordered) - 1, int(len(ordered) * part))]  # noqa: E731
    return {
        "requests": len(ordered),
        "median_ms": 1000 * statistics.median(ordered),
        "p99_ms": 1000 * at(0.99),
        "max_ms": 1000 * ordered[-1],
    }


def tell_refusals(client: HonestClient) -> dict:
    away = client.turned_away(HonestMark(0, 0))
    slow = [refusal for refusal in away if refusal.is_slow]
    return {
        "turned_away_and_let_in_later": len(away),
        # Longer than a crowd makes anybody wait at the door: the run fails for it.
        "kept_waiting_and_turned_away": [f"{refusal.what}: {refusal.seconds:.1f} s" for refusal in slow][:20],
        "kept_waiting_count": len(slow),
        # A deadline may have passed while this process stood still.
        "cut_while_the_client_stood_still": len(client.refusals) - len(away),
        "refused": [failure.what for failure in client.failures][:20],
        "refused_count": len(client.failures),
    }


def bound_of(cluster: Cluster, process) -> int | None:
    """As test_memory has it. None: of the store, and of what is attacked by other processes alone."""
    at_rest = cluster.at_rest[process.name]
    if process in (cluster.gateway, cluster.tls, cluster.shop):
        return memory_bound(at_rest)
    return {cluster.worker: at_rest + 320 * MIB, cluster.coordinator: at_rest + 192 * MIB}.get(process)


def soak(cluster: Cluster, minutes: float) -> dict:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    clients = {
        "gateway": HonestClient(cluster.gateway.port, "/data/honest-1"),
        "gateway again": HonestClient(cluster.gateway.port, "/data/honest-2"),
        "folder": HonestClient(cluster.shop.port, "/data/honest-3"),
        "tls": HonestClient(cluster.tls.port, "/data/honest-4", lambda plain: context.wrap_socket(plain, server_hostname="localhost")),
    }
    assert Peer(cluster.gateway.port).call("PUT", "/data/soak/large", body=b"l" * (16 * MIB)).status == 200
    assert Peer(cluster.gateway.port).call("PUT", "/data/soak/kept", body=b"kept").status == 200
    for client in clients.values():
        client.start()
    time.sleep(BASELINE_SECONDS)
    attacks, began = Soak(cluster), time.monotonic()
    threads = [
        threading.Thread(target=attacks.run, args=(attack.__get__(attacks), SEED + number), daemon=True)
        for number, attack in enumerate(Soak.ATTACKS)
    ]
    for thread in threads:
        thread.start()
    end, peaks = began + minutes * 60, {process.name: 0 for process in cluster.processes}
    looks = 0
    while time.monotonic() < end and all(process.is_alive() for process in cluster.processes):
        time.sleep(min(5, max(0.1, end - time.monotonic())))
        for process in cluster.processes:
            if process.is_alive():
                peaks[process.name] = max(peaks[process.name], process.memory())
        looks += 1
        if looks % 24 == 0:
            passed, refused = int((time.monotonic() - began) / 60), sum(len(client.failures) for client in clients.values())
            print(f"{passed} minutes: {sum(attacks.counts.values())} attacks, {refused} honest requests refused, "
                  f"gateway at most {peaks['gateway'] >> 20} MiB", flush=True)  # fmt: skip
    attacks.stopped.set()
    ended = time.monotonic()
    for thread in threads:
        thread.join(30)
    for client in clients.values():
        client.stop()
    report = {
        "seed": SEED,
        "minutes": round((ended - began) / 60, 1),
        "attacks": dict(attacks.counts),
        "findings": attacks.findings[:50],
        "honest": {},
        "memory": {},
        "alive": {},
    }
    for name, client in clients.items():
        before = [took for when, took in client.latencies if when < began]
        during = [took for when, took in client.latencies if began <= when < ended]
        report["honest"][name] = {
            "before": quantiles(before),
            "during": quantiles(during),
            "ratio_of_medians": quantiles(during)["median_ms"] / quantiles(before)["median_ms"],
        } | tell_refusals(client)
    for process in cluster.processes:
        report["alive"][process.name] = process.is_alive()
        if process.is_alive():
            report["memory"][process.name] = {
                "at_rest_mib": cluster.at_rest[process.name] >> 20,
                "peak_mib": process.memory("VmHWM") >> 20,
                "end_mib": process.memory() >> 20,
            }
            if (bound := bound_of(cluster, process)) is not None:
                report["memory"][process.name]["bound_mib"] = bound >> 20
    report["left"] = {
        name: metric(cluster.gateway.admin, name)
        for name in ("verbs3_gateway_requests_in_flight", "verbs3_gateway_body_memory_bytes", "verbs3_gateway_form_bytes")
    }
    kept = Peer(cluster.store.port).call("GET", "/data/soak/kept")
    if kept.body != b"kept":
        report["findings"].append("an object is gone that nobody may have removed")
    if Peer(cluster.store.port).call("HEAD", "/data/soak/promised").status != 404:
        report["findings"].append("an object was stored whose promise did not hold")
    return report


def find_wrongs(report: dict) -> list[str]:
    """What fails the run, a line each."""
    wrongs = [f"found: {finding}" for finding in report["findings"]]
    wrongs += [f"{name} has ended" for name, is_alive in report["alive"].items() if not is_alive]
    for name, held in report["memory"].items():
        if held["peak_mib"] > held.get("bound_mib", held["peak_mib"]):
            wrongs.append(f"{name} held {held['peak_mib']} MiB, and its bound is {held['bound_mib']} MiB")
    for name, client in report["honest"].items():
        if client["refused_count"]:
            wrongs.append(f"the honest client of {name} was refused: {client['refused']}")
        if client["kept_waiting_count"]:
            wrongs.append(f"the honest client of {name} was kept waiting, and then turned away: {client['kept_waiting_and_turned_away']}")
    return wrongs


def main() -> int:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    folder, asked = Path(sys.argv[2] if len(sys.argv) == 3 else tempfile.mkdtemp(prefix="hostile-soak-")), AskedStore()
    print(f"SEED={SEED}, in {folder}", flush=True)
    cluster = Cluster(find_binary(), folder, asked.port)
    try:
        for port in (cluster.store.port, cluster.shop.port):
            assert Peer(port).call("PUT", "/data").status in (200, 409)
        cluster.at_rest = {process.name: process.memory() for process in cluster.processes}
        report = soak(cluster, float(sys.argv[1]))
    finally:
        cluster.end()
        asked.end()
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report, indent=1))
    wrongs = find_wrongs(report)
    print("\n".join(wrongs), file=sys.stderr)
    return 1 if wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
