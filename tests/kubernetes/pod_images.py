"""The images that pods of the test run: ours as deploy/container says, etcd, a client with boto3 and our package, the RDMA shared
device plugin, and the pause of Kubernetes.

    pod_images.py --verbs3 V --etcd E --pause P --venv VENV --package PACKAGE --plugin FOLDER --dir DIR --root ROOT --python-root ROOT
    pod_images.py --command           the command that makes ROOT, by the Containerfile"""

import argparse
import json
import sys
from pathlib import Path

from container_image import make_image, make_layer, read_recipe

ROOT = Path(__file__).resolve().parents[2]
OURS, ETCD, CLIENT, PAUSE = "registry.example/verbs3", "quay.io/coreos/etcd", "registry.example/client", "registry.example/pause"
PLUGIN = "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin"
PAUSE_NAME = f"{PAUSE}:1"
# boto3, and what it imports.
CLIENT_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "urllib3", "six.py")
# What the plugin looks PCI functions up in; upstream's image has all of it.
PCI_IDS = "1af4  Red Hat, Inc.\n\t1041  Virtio 1.0 network device\nC 02  Network controller\n\t00  Ethernet controller\n"


def recipe():
    return read_recipe((ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8"), "base")


def make_images(said, folder: Path) -> list[dict]:
    """Each with its archive, repository and digest."""
    base, ours = Path(said.root), recipe()
    (folder / "pci.ids").write_text(PCI_IDS)
    program, = ours.copied
    packages = next(Path(said.venv).glob("lib/python3*/site-packages"))
    brought = {f"/opt/client/{name}": packages / name for name in CLIENT_PACKAGES} | {"/opt/client/verbs3": Path(said.package)}
    layers = {
        OURS: [base, make_layer(folder / "verbs3.layer", {program: Path(said.verbs3)})],
        ETCD: [base, make_layer(folder / "etcd.layer", {"/usr/local/bin/etcd": Path(said.etcd)})],
        CLIENT: [Path(said.python_root), make_layer(folder / "client.layer", brought)],
        PLUGIN: [make_layer(folder / "plugin.layer", {"/bin/k8s-rdma-shared-dp": Path(said.plugin) / "k8s-rdma-shared-dp",
                                                     "/usr/share/misc/pci.ids": folder / "pci.ids"})],
        PAUSE: [make_layer(folder / "pause.layer", {"/pause": Path(said.pause)})],
    }
    # As Debian's own image has it: a build takes it over.
    debian = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    configs = {OURS: debian | {"User": ours.user, "Entrypoint": ours.entrypoint}, ETCD: debian, CLIENT: debian | {"User": "9000"},
               PLUGIN: {"Cmd": ["/bin/k8s-rdma-shared-dp"]}, PAUSE: {"Entrypoint": ["/pause"]}}
    images = []
    for repository, parts in layers.items():
        path = folder / (repository.rpartition("/")[2] + ".tar")
        digest = make_image(path, parts, configs[repository], PAUSE_NAME if repository == PAUSE else "")
        images.append({"path": str(path), "repository": repository, "digest": digest})
    for path in [*folder.glob("*.layer"), folder / "pci.ids"]:
        path.unlink()
    return images


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", action="store_true")
    for name in ("verbs3", "etcd", "pause", "venv", "package", "plugin", "dir", "root", "python-root"):
        parser.add_argument(f"--{name}")
    said = parser.parse_args()
    if said.command:
        print(" && ".join(recipe().run))
        return 0
    folder = Path(said.dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "images.json").write_text(json.dumps(make_images(said, folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
