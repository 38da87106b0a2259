#!/usr/bin/env python3
"""Prints what the binary is made of, as a CycloneDX 1.5 document: the crates that `cargo build -p verbs3-cli` takes for this
platform, without those of tests, with licences, checksums and what needs what. Cargo.lock says versions and checksums; cargo says
which of its crates are wanted. With --image also what is beside the binary in the image: the packages of container/packages.lock.

    deploy/sbom.py [--image base|tools] > verbs3.cdx.json
"""

import json
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "deploy/container"))
from packages import LockedPackage, read_lock  # noqa: E402

PACKAGE = "verbs3-cli"
TARGET = "x86_64-unknown-linux-gnu"


def metadata() -> dict:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def wanted(resolved: dict[str, dict], first: str) -> dict[str, list[str]]:
    """Each package that the first needs, by its id, and what it needs itself: not what its tests do."""
    found: dict[str, list[str]] = {}
    queue = [first]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        needs = [one["pkg"] for one in resolved[name]["deps"] if any(kind["kind"] != "dev" for kind in one["dep_kinds"])]
        found[name] = sorted(needs)
        queue += needs
    return found


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict, checksums: dict[tuple[str, str], str]) -> dict:
    found = {"type": "library", "bom-ref": reference(package), "name": package["name"], "version": package["version"], "purl": reference(package)}
    if package.get("license"):
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package.get("description"):
        found["description"] = " ".join(package["description"].split())
    if package.get("repository"):
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def debian_component(package: LockedPackage) -> dict:
    name = f"pkg:deb/debian/{quote(package.name)}@{quote(package.version)}?arch={package.architecture}&distro=debian-12"
    return {"type": "library", "bom-ref": name, "name": package.name, "version": package.version, "purl": name,
            "hashes": [{"alg": "SHA-256", "content": package.sha256}]}


def put_into_image(document: dict, variant: str) -> None:
    """The document becomes that of the image, whose parts are the binary with its crates, and Debian's packages."""
    program = document["metadata"]["component"]
    debian = [debian_component(one) for one in read_lock(variant)[1]]
    image = {"type": "container", "bom-ref": f"image:{program['version']}:{variant}", "name": "verbs3" if variant == "base" else "verbs3-tools",
             "version": program["version"]}
    document["metadata"]["component"] = image
    document["components"] = [program, *document["components"], *debian]
    document["dependencies"].append({"ref": image["bom-ref"], "dependsOn": [program["bom-ref"], *(one["bom-ref"] for one in debian)]})
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, document['serialNumber'] + json.dumps(debian))}"


def main() -> None:
    match sys.argv[1:]:
        case []:
            variant = ""
        case ["--image", "base" | "tools" as variant]:
            pass
        case _:
            sys.exit(__doc__)
    said = metadata()
    packages = {one["id"]: one for one in said["packages"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}
    first = next(one["id"] for one in said["packages"] if one["name"] == PACKAGE)
    needs = wanted({one["id"]: one for one in said["resolve"]["nodes"]}, first)
    inside = sorted(needs, key=lambda name: reference(packages[name]))
    main_component = component(packages[first], checksums) | {"type": "application", "name": "verbs3"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # Of the content: the same sources give the same document.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(lock, sort_keys=True))}",
        "version": 1,
        "metadata": {"component": main_component, "properties": [{"name": "cargo:target", "value": TARGET}]},
        "components": [component(packages[name], checksums) for name in inside if name != first],
        "dependencies": [{"ref": reference(packages[name]), "dependsOn": [reference(packages[other]) for other in needs[name]]} for name in inside],
    }
    if variant:
        put_into_image(document, variant)
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
