"""The images that pods of the test run: ours as deploy/container/build.sh made it, etcd, a client with boto3 and our package, the RDMA
shared device plugin, and the pause of Kubernetes.

    pod_images.py --ours ARCHIVE --etcd E --pause P --venv VENV --package PACKAGE --plugin FOLDER --dir DIR --root ROOT --python-root ROOT"""

import argparse
import json
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/container"))
from oci_archive import ImageContent, write_image, write_layer  # noqa: E402

OURS, ETCD, CLIENT, PAUSE = "registry.example/verbs3", "quay.io/coreos/etcd", "registry.example/client", "registry.example/pause"
PLUGIN = "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin"
PAUSE_NAME = f"{PAUSE}:1"
# boto3, and what it imports.
CLIENT_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "urllib3", "six.py")
# What the plugin looks PCI functions up in; upstream's image has all of it.
PCI_IDS = "1af4  Red Hat, Inc.\n\t1041  Virtio 1.0 network device\nC 02  Network controller\n\t00  Ethernet controller\n"


def digest_in(archive: Path) -> str:
    with tarfile.open(archive) as tar:
        return json.load(tar.extractfile("index.json"))["manifests"][0]["digest"]


def make_images(said, folder: Path) -> list[dict]:
    """Each with its archive, repository and digest."""
    base = Path(said.root)
    (folder / "pci.ids").write_text(PCI_IDS)
    packages = next(Path(said.venv).glob("lib/python3*/site-packages"))
    brought = {f"/opt/client/{name}": packages / name for name in CLIENT_PACKAGES} | {"/opt/client/verbs3": Path(said.package)}
    layers = {
        ETCD: [base, write_layer(folder / "etcd.layer", {"/usr/local/bin/etcd": Path(said.etcd)})],
        CLIENT: [Path(said.python_root), write_layer(folder / "client.layer", brought)],
        PLUGIN: [write_layer(folder / "plugin.layer", {"/bin/k8s-rdma-shared-dp": Path(said.plugin) / "k8s-rdma-shared-dp",
                                                     "/usr/share/misc/pci.ids": folder / "pci.ids"})],
        PAUSE: [write_layer(folder / "pause.layer", {"/pause": Path(said.pause)})],
    }
    configs = {ETCD: {}, CLIENT: {"User": "9000"}, PLUGIN: {"Cmd": ["/bin/k8s-rdma-shared-dp"]}, PAUSE: {"Entrypoint": ["/pause"]}}
    images = [{"path": said.ours, "repository": OURS, "digest": digest_in(Path(said.ours))}]
    for repository, parts in layers.items():
        path = folder / (repository.rpartition("/")[2] + ".tar")
        digest = write_image(path, ImageContent(parts, configs[repository], name=PAUSE_NAME if repository == PAUSE else ""))
        images.append({"path": str(path), "repository": repository, "digest": digest})
    for path in [*folder.glob("*.layer"), folder / "pci.ids"]:
        path.unlink()
    return images


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("ours", "etcd", "pause", "venv", "package", "plugin", "dir", "root", "python-root"):
        parser.add_argument(f"--{name}")
    said = parser.parse_args()
    folder = Path(said.dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "images.json").write_text(json.dumps(make_images(said, folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
