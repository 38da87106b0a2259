#!/usr/bin/env python3
"""What can be said of deploy/ without starting anything: its scripts, its units, its list of parts.

    static.py DIR      DIR takes what is made on the way

Prints what is wrong and exits 1."""

import json
import re
import subprocess
from pathlib import Path

from verdict import judge

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# In every unit, beyond what `systemd-analyze security` weighs (units.py).
DIRECTIVES = {"LimitCORE": "0", "CoredumpFilter": "0", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "UMask": "0077"}
SECRET = re.compile(r"(SECRET|PASSWORD|ACCESS_KEY|KEY_ID)=(?!/)\S", re.I)


def scripts() -> list[str]:
    """What shellcheck says of the scripts."""
    found = [path for place in (DEPLOY, ROOT / "tests/deploy") for path in place.rglob("*.sh")]
    command = ["shellcheck", "--external-sources", "--source-path", ROOT, "--severity=style", *sorted(found), ROOT / "tests/testbed/helm.sh",
               *(ROOT / f"tests/testbed/{name}.sh" for name in ("kubernetes", "crds", "cert-manager", "coredns", "containerd", "debian-root", "host-vm", "host-disk")),
               *sorted((ROOT / "tests/kubernetes").glob("*.sh"))]
    done = subprocess.run(command, capture_output=True, text=True)
    return [done.stdout + done.stderr] if done.returncode != 0 else []


def units() -> list[str]:
    wrong = []
    for path in sorted((DEPLOY / "systemd").rglob("*.*")):
        if path.is_dir() or path.suffix == ".toml":
            continue
        text = path.read_text(encoding="utf-8")
        lines = re.findall(r"^([A-Za-z]+)=(.*)$", text, re.M)
        if path.suffix == ".service":
            said = dict(lines)
            wrong += [f"{path.name}: {name} is not {value!r}" for name, value in DIRECTIVES.items() if said.get(name) != value]
        wrong += [f"{path.name}: a secret in the environment: {match[0]}" for match in SECRET.finditer(re.sub(r"^#.*", "", text, flags=re.M))]
    return wrong


def parts(folder: Path) -> list[str]:
    """The list of parts, against itself and against Cargo.lock."""
    done = subprocess.run([DEPLOY / "sbom.py"], capture_output=True, text=True)
    if done.returncode != 0:
        return [f"deploy/sbom.py: {done.stderr}"]
    (folder / "verbs3.cdx.json").write_text(done.stdout)
    document = json.loads(done.stdout)
    components = {one["bom-ref"]: one for one in document["components"]}
    first = document["metadata"]["component"]["bom-ref"]
    lock = (ROOT / "Cargo.lock").read_text(encoding="utf-8")
    wrong = []
    if len(components) != len(document["components"]):
        wrong.append("two components have one reference")
    for one in document["components"]:
        if one["name"].startswith("verbs3-"):
            continue
        hashes = [entry["content"] for entry in one.get("hashes", [])]
        if len(hashes) != 1 or f'checksum = "{hashes[0]}"' not in lock or not one.get("licenses"):
            wrong.append(f"{one['bom-ref']} has no checksum of Cargo.lock, or no licence")
    for one in document["dependencies"]:
        wrong += [f"{name} is no component" for name in [one["ref"], *one["dependsOn"]] if name != first and name not in components]
    # What the binary can't be without, and what is of tests alone.
    names = {one["name"] for one in document["components"]}
    if not {"tokio", "verbs3-rdma", "rustls"} <= names or names & {"proptest", "windows-sys"}:
        wrong.append(f"not what the binary is made of: {len(names)} components")
    print(f"static: {len(components)} parts")
    return [f"deploy/sbom.py: {what}" for what in wrong]


def main(folder: Path) -> list[str]:
    wrong = scripts() + units() + parts(folder)
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 1)
