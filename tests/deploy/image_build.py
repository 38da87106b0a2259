#!/usr/bin/env python3
"""The container image: built twice, looked into, held against its list of parts, and loaded and started by podman.

    image_build.py VERBS3 DIR      VERBS3: the binary that is packed; DIR takes archives and podman's storage

Prints what is wrong and exits 1. What this machine does not allow goes to DIR/not-proven. TOOLS=1 takes the image with the tools."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from verdict import Broken, judge

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = ROOT / "deploy/container"
sys.path.insert(0, str(CONTAINER))
from oci_archive import ImageContent, write_image, write_layer  # noqa: E402
from assemble_image import ENTRYPOINT, USER  # noqa: E402

VARIANT = "tools" if os.environ.get("TOOLS") else "base"
# What a build leaves behind on other people's machines, or brings along: none of it is in a layer.
LEFT_BEHIND = re.compile(r"_history$|^(var/lib/apt/lists|var/cache|var/log|tmp|root|home)/.|^etc/(hostname|resolv\.conf|machine-id|apt/sources\.list.*)$")
PODMAN = "podman --root {dir}/storage --runroot {dir}/run --tmpdir {dir}/tmp --storage-driver vfs --cgroup-manager cgroupfs --events-backend none"
# Limits below those of any machine: one that is raised is refused where the test runs in a container.
RUN = "run --rm --network none --runtime crun --cap-drop all --ulimit nofile=1024:1024 --ulimit nproc=1000:1000"
# crun wants one version of cgroups; podman leaves what it does in this namespace.
APART = "if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi"
# As the image's user. Each line that begins with hold names what it holds.
STORY = r"""
hold() { if eval "$2"; then echo "HELD $1"; else echo "ERROR: $1 ($2)"; exit 1; fi; }
hold "the user" '[ "$(id -u):$(id -g):$(id -G)" = 9000:9000:9000 ]'
hold "no core dumps" 'grep -Eq "^Max core file size +1 +1 " /proc/self/limits'
hold "no file gives rights" '[ -z "$(find / -xdev -type f -perm /6000 2>/dev/null)" ]'
hold "nothing of the image can be written" '! touch /usr/local/bin/other 2>/dev/null && [ ! -w /usr/local/bin/verbs3 ] && [ ! -w /etc ]'
hold "every library of the binary" '! ldd /usr/local/bin/verbs3 | grep "not found"'
hold "libraries of RDMA" 'for name in libibverbs.so.1 librdmacm.so.1; do /sbin/ldconfig -p | grep -q $name || exit 1; done'
hold "certificates" '[ "$(grep -c BEGIN /etc/ssl/certs/ca-certificates.crt)" -gt 100 ]'
hold "packages are whole" '[ -z "$(dpkg --audit)" ]'
"""
TOOLS_STORY = r"""
hold "the tools" 'for name in ib_write_bw ibv_devinfo rping ibstat ip ethtool lspci numactl iperf3 curl jq; do command -v $name >/dev/null || exit 1; done'
hold "a tool starts" '[ "$(echo "{\"a\": 1}" | jq .a)" = 1 ] && curl --version >/dev/null'
"""


def run(*command, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def make_environment(folder: Path) -> tuple[dict[str, str], list[str]]:
    """What builds are told, and what is not proven: packages come from the machine's mirror, and are kept."""
    unproven = []
    mirror = run("bash", "-c", f". {ROOT}/tests/testbed/mirror.sh && mirror", check=True).stdout.strip().removesuffix("/debian")
    kept = Path(os.environ.get("VERBS3_CACHE_DIR", Path.home() / ".cache/verbs3")) / "image"
    told = os.environ | {"DEBIAN_MIRROR": mirror, "IMAGE_FOLDER": str(kept), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run(CONTAINER / "packages.py", "fetch", VARIANT, kept / "packages", env=told)
    if done.returncode != 0 and "is at neither" in done.stderr:
        gone = re.findall(r"packages: \S+/(\S+) of", done.stderr)
        unproven.append(f"the image of packages.lock: {', '.join(gone)} can't be fetched here any more, so one of what the mirror has now was tried; "
                        "`deploy/container/packages.py lock` renews it")
        told["DEBIAN_LOCK"] = str(folder / "packages.lock")
        done = run(CONTAINER / "packages.py", "lock", env=told)
        done = run(CONTAINER / "packages.py", "fetch", VARIANT, kept / "packages", env=told) if done.returncode == 0 else done
    if done.returncode != 0:
        raise Broken(f"packages.py: {done.stderr}")
    return told | {"DEBIAN_PACKAGES": str(kept / "packages")}, unproven


def build_twice(binary: Path, folder: Path, told: dict[str, str]) -> list[Path]:
    """Side by side: one by what is kept, one anew, and elsewhere in every way that a build can see."""
    (folder / "again").mkdir()
    options = (["--tools"] if VARIANT == "tools" else []) + ["--binary", str(binary)]
    apart = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && umask 077 && cd / && exec "$@"', "-"] if os.geteuid() == 0 else []
    archives = [folder / "verbs3.tar", folder / "again/verbs3.tar"]
    other = told | {"IMAGE_FOLDER": str(folder / "again/image"), "TZ": "Pacific/Auckland", "LANG": "C.UTF-8", "HOME": "/nonexistent",
                    "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
                    "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))}
    builds = [subprocess.Popen([*before, CONTAINER / "build.sh", *options, archive], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
              for before, environment, archive in (([], told, archives[0]), (apart, other, archives[1]))]
    said = [build.communicate() for build in builds]
    for build, (_, errors) in zip(builds, said):
        if build.returncode != 0:
            raise Broken(f"build.sh: {errors[-3000:]}")
    return archives


def read_archive(path: Path, folder: Path) -> tuple[dict, dict, list[Path]]:
    """Manifest, configuration and layers, unpacked; each blob must be what its name says."""
    with tarfile.open(path) as tar:
        tar.extractall(folder, filter="data")
    for blob in (folder / "blobs/sha256").iterdir():
        with blob.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != blob.name:
                raise Broken(f"the blob {blob.name} is another one")

    def place(part: dict) -> Path:
        found = folder / "blobs" / part["digest"].replace(":", "/")
        if found.stat().st_size != part["size"]:
            raise Broken(f"the blob {part['digest']} has not the size that is said")
        return found

    index = json.loads((folder / "index.json").read_text())
    manifest = json.loads(place(index["manifests"][0]).read_text())
    return manifest, json.loads(place(manifest["config"]).read_text()), [place(one) for one in manifest["layers"]]


def wrong_inside(config: dict, layers: list[Path], version: str) -> list[str]:
    started, wrong = config["config"], []
    labels = {name.rpartition(".")[2]: value for name, value in started["Labels"].items()}
    head = run("git", "-C", ROOT, "rev-parse", "HEAD", check=True).stdout.strip()
    if labels["version"] != version or labels["revision"].removesuffix("-dirty") != head or labels["licenses"] != "Apache-2.0":
        wrong.append(f"labels: {labels}")
    if started["User"] != str(USER) or started["Entrypoint"] != ENTRYPOINT:
        wrong.append(f"a container would start with {started}")
    for layer in layers:
        with tarfile.open(layer) as tar:
            for entry in tar:
                name = entry.name.removeprefix("./")
                if entry.isdev() or entry.isfile() and entry.mode & 0o6000 or LEFT_BEHIND.search(name):
                    wrong.append(f"the layers have {name} ({entry.mode:o})")
    return wrong


def wrong_parts(document: dict, root: Path, version: str) -> list[str]:
    """The list of parts, against what dpkg knows inside."""
    with tarfile.open(root) as tar:
        status = tar.extractfile("./var/lib/dpkg/status").read().decode()
    inside = {tuple(re.search(rf"^{name}: (.*)$", one, re.M)[1] for name in ("Package", "Version")) for one in status.strip().split("\n\n")}
    listed = {(one["name"], one["version"]) for one in document["components"] if one["purl"].startswith("pkg:deb/")}
    references = {one["bom-ref"] for one in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
    wrong = [f"parts: {one} is inside or listed alone" for one in sorted(inside ^ listed)]
    wrong += [f"parts: {name} is no component" for one in document["dependencies"] for name in (one["ref"], *one["dependsOn"]) if name not in references]
    if len(references) != len(document["components"]) + 1 or ("verbs3", version) not in {(one["name"], one["version"]) for one in document["components"]}:
        wrong.append("parts: two have one reference, or the binary is none of them")
    return wrong


def run_by_podman(archive: Path, folder: Path, version: str) -> tuple[list[str], str]:
    """What is wrong, and what is not proven: a small image of another program tells whether podman runs anything here."""
    if os.geteuid() != 0:
        return [], "the image at an engine: this is not root"
    folder.mkdir()
    program = write_layer(folder / "control.layer", {"/busybox": Path("/usr/bin/busybox")})
    write_image(folder / "control.tar", ImageContent([program], {"Entrypoint": ["/busybox"]}, name="localhost/control:1", tag="1"))
    podman = PODMAN.format(dir=folder)

    def start(image: str, *words: str) -> subprocess.CompletedProcess:
        return run("unshare", "--mount", "sh", "-c", f'{APART}; exec {podman} {RUN} "$@"', "-", *words[:-1], image, *words[-1].split("\0"), timeout=120)

    title = "verbs3" if VARIANT == "base" else "verbs3-tools"
    loaded = run("sh", "-c", f"{podman} load -i {folder}/control.tar && {podman} load -i {archive}", timeout=300)
    if loaded.returncode != 0 or f"localhost/{title}:{version}" not in loaded.stdout:
        return [f"podman load: {loaded.stdout}{loaded.stderr}"], ""
    if (control := start("localhost/control:1", "echo\0control")).stdout != "control\n":
        return [], f"the image at an engine: podman starts no container here ({control.stderr.strip()[-200:]})"
    image, wrong = f"localhost/{title}:{version}", []
    said = start(image, "--version")
    if said.stdout != f"verbs3 {version}\n":
        wrong.append(f"podman run --version: {said.stdout}{said.stderr}")
    story = STORY + (TOOLS_STORY if VARIANT == "tools" else "")
    inside = json.dumps([*ENTRYPOINT[:-1], "/bin/sh"])
    for confined in ([], ["--read-only"]):
        told = start(image, *confined, "--entrypoint", inside, f"-c\0{story}")
        held = told.stdout.count("HELD")
        if told.returncode != 0 or held != story.count("\nhold \""):
            wrong.append(f"inside: {told.stdout}{told.stderr}")
    print(f"image: podman loads and starts it; {held} things held inside")
    return wrong, ""


def check_image(binary: Path, folder: Path) -> list[str]:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    told, unproven = make_environment(folder)
    first, again = build_twice(binary, folder, told)
    wrong = []
    if first.read_bytes() != again.read_bytes() or first.with_suffix(".cdx.json").read_bytes() != again.with_suffix(".cdx.json").read_bytes():
        wrong.append("the same sources and binary give two images that differ")
    manifest, config, layers = read_archive(first, folder / "unpacked")
    wrong += wrong_inside(config, layers, version)
    wrong += wrong_parts(json.loads(first.with_suffix(".cdx.json").read_text()), layers[0], version)
    found, reason = run_by_podman(first, folder / "engine", version)
    unproven += [reason] if reason else []
    if VARIANT == "base":
        unproven.append("the image with the tools: by hand, by `TOOLS=1 tests/deploy/image_build.py VERBS3 DIR`")
    if unproven:
        (folder / "not-proven").write_text("".join(f"{one}\n" for one in unproven))
    digest = json.loads((folder / "unpacked/index.json").read_text())["manifests"][0]["digest"]
    print(f"image: {VARIANT}, {first.stat().st_size >> 20} MiB in {len(manifest['layers'])} layers, twice the same: {digest}")
    return wrong + found


def main(binary: Path, folder: Path) -> list[str]:
    try:
        return check_image(binary, folder)
    except Broken as error:
        return [str(error)]


if __name__ == "__main__":
    judge(main, __doc__, 2)
