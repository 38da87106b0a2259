"""What goes wrong in the lab, one trouble after the other: what each does, and the alerts that it leads to at once. An alert that waits
(`for`) is pending meanwhile."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from lab import ROOT, WITHIN, Lab, get, wait
from lab_kubernetes import Kubernetes

ANOTHER_SECRET = "another secret altogether, long enough"


def await_scrape() -> None:
    """A rate sees nothing of a counter's first value: what counts goes on after this."""
    time.sleep(3)


@dataclass
class Trouble:
    begin: Callable[[], None]
    alerts: set[str]


class Troubles:
    """Of one lab; KUBERNETES: its webhook and controller, where it has them."""

    def __init__(self, lab: Lab, kubernetes: Kubernetes | None) -> None:
        self.lab, self.kubernetes = lab, kubernetes

    def in_order(self) -> list[Trouble]:
        """The later ones take away what the earlier ones need."""
        first = [
            Trouble(self.fill_drive, {"Verbs3DiskFull", "Verbs3DiskErrors"}),
            Trouble(self.spoil_segments, {"Verbs3DiskCorrupt"}),
            Trouble(self.shorten_certificates, {"Verbs3CertificateEnds", "Verbs3CertificateOver", "Verbs3NodeCertificateEnds", "Verbs3NodeCertificateOver"}),
            Trouble(self.spoil_certificates, {"Verbs3CertificateRefused", "Verbs3NodeCertificateRefused"}),
            Trouble(self.ask_as_stranger, {"Verbs3HandshakesFail"}),
            Trouble(self.preload_nothing, {"Verbs3PreloadNotDone"}),
            Trouble(self.stop_store, {"Verbs3QueueFull", "Verbs3RequestsFail"}),
            Trouble(self.let_store_go, set()),
            Trouble(self.stop_odd_store, {"Verbs3SlowDowns"}),
            Trouble(self.lie, {"Verbs3UfsAnswersRefused"}),
            Trouble(self.pull_cable, {"Verbs3PortDown"}),
            Trouble(self.remove_nic, {"Verbs3RailDown"}),
            Trouble(self.remove_socket, {"Verbs3FallsBackToTcp", "Verbs3DataOverTcp"}),
            Trouble(self.cut_gateway_from_worker, {"Verbs3Relays"}),
            Trouble(self.cut_gateway_from_all, {"Verbs3ReportsFail", "Verbs3RelaysFail", "Verbs3ProcessDown"}),
            Trouble(self.kill_worker, {"Verbs3WorkerGone"}),
            Trouble(self.kill_store, {"Verbs3StoreSilent", "Verbs3StoreFails", "Verbs3CircuitOpen"}),
            Trouble(self.kill_etcd, {"Verbs3CoordinatorStoreFails", "Verbs3NoCoordinatorLeads", "Verbs3WorkerWithoutLease"}),
            Trouble(self.empty_etcd, {"Verbs3MapsLost"}),
        ]
        of_kubernetes = [
            Trouble(self.shorten_webhook_certificate, {"Verbs3WebhookCertificateEnds"}),
            Trouble(self.spoil_webhook_certificate, {"Verbs3WebhookCertificateRefused"}),
            Trouble(self.ask_nonsense, {"Verbs3PodsNotPatched"}),
            Trouble(self.make_many_preloads, {"Verbs3ControllerBehind"}),
        ]
        return (of_kubernetes if self.kubernetes else []) + first

    def read(self, keys: range, bucket: str = "demo") -> None:
        client = self.lab.client()
        for key in keys:
            self.lab.fail(lambda key=key: client.get_object(Bucket=bucket, Key=f"lab/{key}")["Body"].read())

    def fill_drive(self) -> None:
        """Somebody fills the drive that the workers' folders are on."""
        with open(self.lab.drive / "somebody-elses", "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            except OSError:
                pass
        self.lab.use(range(40, 60))

    def spoil_segments(self) -> None:
        """Pages on disk rot at one worker, and the files of another are cut short."""
        for file in (self.lab.drive / "worker-1").rglob("*"):
            if file.is_file() and file.stat().st_size > 1 << 20:
                with open(file, "r+b") as segment:
                    for at in range(0, file.stat().st_size, 64 << 10):
                        segment.seek(at + 8192)
                        segment.write(os.urandom(64))
        for file in (self.lab.drive / "worker-0").rglob("*"):
            if file.is_file() and file.stat().st_size > 1 << 20:
                os.truncate(file, 4096)
        self.read(range(60))

    def short_pair(self, name: str) -> tuple[str, str]:
        """Certificate and key that hold for a day, of the lab's own authority."""
        folder = self.lab.folder / f"short-{name}"
        folder.mkdir()
        for file in ("ca.crt", "ca.key"):
            shutil.copy(self.lab.folder / "pki" / file, folder / file)
        subprocess.run([ROOT / "deploy/certificates.sh", folder, "localhost"], check=True, env=os.environ | {"DAYS": "1"})
        return (folder / "members.crt").read_text(), (folder / "members.key").read_text()

    def shorten_certificates(self) -> None:
        """A gateway and a worker get certificates that end tomorrow."""
        certificate, key = self.short_pair("gateway")
        (self.lab.folder / "pki/members.crt").write_text(certificate)
        (self.lab.folder / "pki/members.key").write_text(key)
        node = self.lab.folder / "node"
        names = "subjectAltName=URI:verbs3://verbs3/worker/worker-1,DNS:localhost"
        request = ["openssl", "req", "-new", "-key", node / "worker-worker-1.key", "-subj", "/CN=none", "-addext", names,
                   "-addext", "extendedKeyUsage=serverAuth,clientAuth", "-out", node / "short.csr"]
        sign = ["openssl", "x509", "-req", "-in", node / "short.csr", "-CA", node / "ca.crt", "-CAkey", node / "ca.key",
                "-copy_extensions", "copy", "-days", "1", "-out", node / "short.crt"]
        for command in (request, sign):
            subprocess.run(command, check=True, capture_output=True)
        (node / "short.crt").replace(node / "worker-worker-1.crt")

    def spoil_certificates(self) -> None:
        """Files that are no keys."""
        (self.lab.folder / "pki/members.key").write_text("no key\n")
        self.node_key = (self.lab.folder / "node/worker-worker-1.key").read_text()
        (self.lab.folder / "node/worker-worker-1.key").write_text("no key\n")

    def ask_as_stranger(self) -> None:
        """A peer has another secret."""
        (self.lab.folder / "another").write_text(ANOTHER_SECRET)
        fabric = [self.lab.verbs3, "bench", "fabric", "127.0.0.1:9400", "--ways", "tcp", "--seconds", "0.1", "--secret-file", self.lab.folder / "another"]
        subprocess.run(fabric, capture_output=True, timeout=WITHIN)

    def preload_nothing(self) -> None:
        self.lab.preload("--manifest", "s3://demo/nothing")

    def at_once(self, calls: list[Callable[[], object]]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self.lab.fail, args=[call], daemon=True) for call in calls]
        for one in threads:
            one.start()
        return threads

    def stop_store(self) -> None:
        """The store stands still under more requests than there may be: the others wait in vain."""
        client = self.lab.client()
        self.lab.processes["store"].send_signal(signal.SIGSTOP)
        self.askers = self.at_once([lambda: client.list_objects_v2(Bucket="demo")] * 9)
        await_scrape()
        self.askers += self.at_once([lambda: client.list_objects_v2(Bucket="demo")] * 9)

    def let_store_go(self) -> None:
        """It goes on, stands still for a moment, and those who wait get their turn."""
        client, store = self.lab.client(), self.lab.processes["store"]
        for asked in (self.askers, self.at_once([lambda: client.list_objects_v2(Bucket="demo")] * 9)):
            time.sleep(0.5)
            store.send_signal(signal.SIGCONT)
            for one in asked:
                one.join()
            store.send_signal(signal.SIGSTOP)
        store.send_signal(signal.SIGCONT)

    def stop_odd_store(self) -> None:
        """A store stands still under more reads past the cache than there may be."""
        client, odd = self.lab.client(), self.lab.processes["odd-store"]
        odd.send_signal(signal.SIGSTOP)
        readers = self.at_once([lambda key=key: client.get_object(Bucket="past", Key=f"lab/{key}")["Body"].read() for key in range(4)])
        time.sleep(2)
        odd.send_signal(signal.SIGCONT)
        for one in readers:
            one.join()

    def lie(self) -> None:
        """A store's answers contradict themselves."""
        (self.lab.folder / "odd-store.lies").touch()
        self.read(range(12), "odd")

    def pull_cable(self) -> None:
        """The kernel calls the port down."""
        (self.lab.port / "state").write_text("1: DOWN\n")

    def remove_nic(self) -> None:
        """A worker comes back without its NIC."""
        self.lab.end("worker-0")
        self.lab.serve("worker-0", "worker", 9401, rail="mlx5_0")

    def remove_socket(self) -> None:
        """A worker's socket for gateways of this host is gone, and its stand-in of a NIC answers nobody: there is tcp alone."""
        # Without its key it would not start.
        (self.lab.folder / "node/worker-worker-1.key").write_text(self.node_key)
        self.lab.end("worker-1")
        self.lab.serve("worker-1", "worker", 9411)
        socket = self.lab.folder / "worker-1.sock"
        wait("the worker's socket", socket.exists)
        socket.unlink()
        wait("both workers", lambda: "verbs3_coordinator_members 2" in get("http://127.0.0.1:9501/metrics"))
        # Half of the objects are that worker's: much more than a twentieth of what was read so far.
        self.lab.use(range(60, 90))
        await_scrape()
        for _ in range(2):
            self.read(range(60, 90))

    def cut(self, port: int) -> None:
        """Drops what is sent to a port."""
        for words in ("add table ip cut", "add chain ip cut out { type filter hook output priority 0; }", f"add rule ip cut out tcp dport {port} drop"):
            subprocess.run(["nft", words], check=True)

    def cut_gateway_from_worker(self) -> None:
        """Nothing reaches that worker any more, which itself reaches the coordinator."""
        self.cut(9410)
        self.lab.use(range(90, 96))

    def cut_gateway_from_all(self) -> None:
        """In the middle of writes no coordinator answers any more: nobody can be told of the end of those at the worker that is cut off."""
        client, goes_on = self.lab.client(), threading.Event()

        class Body:
            """Comes to its end when told."""

            def __init__(self) -> None:
                self.left = 2

            def read(self, _count: int = -1) -> bytes:
                self.left -= 1
                if self.left == 0:
                    goes_on.wait()
                return bytes(65536) if self.left >= 0 else b""

            def __len__(self) -> int:
                return 2 * 65536

        writers = self.at_once([lambda key=key: client.put_object(Bucket="demo", Key=f"lab/{key}", Body=Body()) for key in range(400, 404)])
        time.sleep(3)
        self.lab.processes["coordinator"].send_signal(signal.SIGSTOP)
        goes_on.set()
        for one in writers:
            one.join()
        self.lab.use(range(110, 112))
        self.lab.processes["coordinator"].send_signal(signal.SIGCONT)

    def kill_worker(self) -> None:
        self.lab.end("worker-1", signal.SIGKILL)
        self.read(range(12))

    def kill_store(self) -> None:
        self.lab.end("store", signal.SIGKILL)
        self.read(range(200, 220))
        await_scrape()
        self.read(range(220, 240))

    def kill_etcd(self) -> None:
        self.lab.end("etcd", signal.SIGKILL)

    def empty_etcd(self) -> None:
        """Somebody starts it anew, with nothing in it."""
        self.lab.start_etcd(self.lab.folder / "empty-etcd")

    def shorten_webhook_certificate(self) -> None:
        certificate, key = self.short_pair("webhook")
        (self.kubernetes.folder / "members.crt").write_text(certificate)
        (self.kubernetes.folder / "members.key").write_text(key)

    def spoil_webhook_certificate(self) -> None:
        (self.kubernetes.folder / "members.key").write_text("no key\n")

    def ask_nonsense(self) -> None:
        self.kubernetes.ask_nonsense()

    def make_many_preloads(self) -> None:
        """More resources than have a turn in a round, and nobody can do anything for them."""
        for number in range(6):
            self.kubernetes.preload(f"many-{number}", "no-such-secret")
