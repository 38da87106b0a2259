#!/usr/bin/env python3
"""Debian packages of the image: packages.lock names each by its version and checksum, and the image has these and no others.

    packages.py lock                     writes packages.lock anew, by what the mirror has now
    packages.py fetch base|tools FOLDER  FOLDER takes the packages, and an index of them that apt reads
    packages.py list base|tools          name, version and architecture of each
    packages.py asked base|tools         what is asked for: the others follow from it
    packages.py taken                    when packages.lock was written, in seconds since 1970

DEBIAN_MIRROR is the address before /debian and /debian-security (http://deb.debian.org). What it has no longer is asked of
DEBIAN_SNAPSHOT (https://snapshot.debian.org). Checksums decide what is taken, so any mirror does. DEBIAN_PACKAGES names a folder that
has files already, for sites without a network. Needs apt."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

LOCK = Path(os.environ.get("DEBIAN_LOCK") or Path(__file__).resolve().parent / "packages.lock")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org").rstrip("/")
SNAPSHOT = os.environ.get("DEBIAN_SNAPSHOT", "https://snapshot.debian.org").rstrip("/")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
HELPER = "/usr/lib/apt/apt-helper"
SUITE, ARCHITECTURE, TIME = "bookworm", "amd64", "%Y%m%dT%H%M%SZ"
ARCHIVES = (("debian", SUITE), ("debian", f"{SUITE}-updates"), ("debian-security", f"{SUITE}-security"))
# Certificates are for https stores. Libraries of rdma-core are loaded where the host has devices. The first: not what brings Perl.
BASE = ("usr-is-merged", "ca-certificates", "libibverbs1", "librdmacm1", "ibverbs-providers")
# What somebody wants who looks for a fault, or holds a fabric against others' tools.
TOOLS = ("rdma-core", "ibverbs-utils", "rdmacm-utils", "perftest", "infiniband-diags", "iproute2", "ethtool", "pciutils", "numactl",
         "iperf3", "curl", "jq")


@dataclass(frozen=True)
class LockedPackage:
    """A line of packages.lock. Its set is the smallest image that has it: tools has all of base."""

    set: str
    name: str
    version: str
    architecture: str
    sha256: str
    path: str

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


def read_lock(wanted: str = "tools") -> tuple[datetime, list[LockedPackage]]:
    """When it was written, and the packages of the image that is wanted."""
    taken, packages = None, []
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if words[0] == "taken":
            taken = datetime.strptime(words[1], TIME).replace(tzinfo=UTC)
        elif len(words) == 6 and words[0] in ("base", "tools") and re.fullmatch("[0-9a-f]{64}", words[4]):
            packages.append(LockedPackage(*words))
        else:
            sys.exit(f"ERROR: packages: {LOCK} has a line that is not understood: {line}")
    if taken is None or not packages:
        sys.exit(f"ERROR: packages: {LOCK} does not say when it was taken, or names nothing")
    return taken, [one for one in packages if one.set in ("base", wanted)]


def resolve(folder: Path, wanted: tuple[str, ...]) -> dict[str, str]:
    """Each package that apt would install for these on an empty root: its path, and how its line goes on. FOLDER has apt's state."""
    environment = os.environ | {"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}
    if not (folder / "apt.conf").exists():
        for place in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
            (folder / place).mkdir(parents=True)
        (folder / "status").touch()
        # Otherwise apt takes itself for essential.
        (folder / "apt.conf").write_text(
            f'Dir "{folder}/"; Dir::State::status "{folder}/status"; APT::Architecture "{ARCHITECTURE}"; APT::Architectures {{ "{ARCHITECTURE}"; }};\n'
            'APT::Install-Recommends "false"; APT::Sandbox::User "root"; pkgCacheGen::ForceEssential ","; Acquire::Languages "none"; Acquire::Retries "5";\n')
        (folder / "etc/apt/sources.list").write_text("".join(
            f"deb [signed-by={KEYRING}] {MIRROR}/{archive} {suite} main\n" for archive, suite in ARCHIVES))
        subprocess.run(["apt-get", "--quiet", "--error-on=any", "update"], check=True, env=environment, stdout=sys.stderr)
    said = subprocess.run(["apt-get", "--print-uris", "--yes", "install", "?essential", *wanted],
                          check=True, env=environment, capture_output=True, text=True).stdout
    found = {unquote(uri.removeprefix(MIRROR + "/")): "" for uri in re.findall(r"^'([^']+)' \S+ \d+ \S*$", said, re.M)}
    # Beside an address apt prints a checksum of its choice, and no version's epoch.
    for stanza in subprocess.run(["apt-cache", "dumpavail"], check=True, env=environment, capture_output=True, text=True).stdout.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Filename|SHA256): (.*)$", stanza, re.M))
        for archive in ("debian", "debian-security"):
            path = f"{archive}/{fields.get('Filename')}"
            if path in found:
                found[path] = " ".join(fields[name] for name in ("Package", "Version", "Architecture", "SHA256"))
    return found


def lock() -> None:
    taken = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as folder:
        base = resolve(Path(folder), BASE)
        tools = resolve(Path(folder), BASE + TOOLS)
    if base.items() - tools.items():
        sys.exit(f"ERROR: packages: the tools would replace {sorted(base.items() - tools.items())} of the base")
    lines = ["# What the image's root file systems are made of: `packages.py lock` writes this file, and builds take nothing else.",
             "# set, name, version, architecture, SHA-256, path", f"taken {taken.strftime(TIME)}"]
    for path, described in sorted(tools.items(), key=lambda one: (one[0] not in base, one[1])):
        lines.append(f"{'base' if path in base else 'tools'} {described} {path}")
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{LOCK.name}: {len(base)} packages of the base, {len(tools)} with the tools")


def is_whole(path: Path, package: LockedPackage) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == package.sha256


def download(packages: list[LockedPackage], folder: Path, address) -> None:
    """Tries to bring them: what is missing afterwards is for the caller to see."""
    words = [word for one in packages for word in (address(one), str(folder / one.file), f"SHA256:{one.sha256}")]
    if words:
        subprocess.run([HELPER, "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root", "download-file", *words],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fetch(wanted: str, folder: Path) -> None:
    taken, packages = read_lock(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    if brought := os.environ.get("DEBIAN_PACKAGES"):
        for one in packages:
            here = Path(brought).resolve() / one.file
            if is_whole(here, one) and not (folder / one.file).exists():
                (folder / one.file).write_bytes(here.read_bytes())

    def missing() -> list[LockedPackage]:
        return [one for one in packages if not is_whole(folder / one.file, one)]

    # Snapshots are taken a few times a day: this is after the first that has them all.
    moment = (taken + timedelta(days=1)).strftime(TIME)
    download(missing(), folder, lambda one: f"{MIRROR}/{one.path}")
    download(missing(), folder, lambda one: "{}/archive/{}/{}/{}".format(SNAPSHOT, one.path.partition("/")[0], moment, one.path.partition("/")[2]))
    if left := missing():
        sys.exit("\n".join([*(f"ERROR: packages: {one.path} of {LOCK.name} is at neither {MIRROR} nor {SNAPSHOT}" for one in left),
                            "`packages.py lock` takes what the mirror has now"]))
    index = []
    for one in packages:
        control = subprocess.run(["dpkg-deb", "--field", folder / one.file], check=True, capture_output=True, text=True).stdout
        index.append(f"{control.rstrip()}\nFilename: ./{one.file}\nSize: {(folder / one.file).stat().st_size}\nSHA256: {one.sha256}\n")
    (folder / "Packages").write_text("\n".join(index), encoding="utf-8")


def main(words: list[str]) -> None:
    match words:
        case ["lock"]:
            lock()
        case ["fetch", "base" | "tools" as wanted, folder]:
            fetch(wanted, Path(folder).resolve())
        case ["list", "base" | "tools" as wanted]:
            print("\n".join(sorted(f"{one.name} {one.version} {one.architecture}" for one in read_lock(wanted)[1])))
        case ["asked", "base" | "tools" as wanted]:
            print(",".join(BASE if wanted == "base" else BASE + TOOLS))
        case ["taken"]:
            print(int(read_lock()[0].timestamp()))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
