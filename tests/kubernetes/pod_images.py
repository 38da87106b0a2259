"""The images that pods of the test run: ours as deploy/container says, etcd, a client with boto3 and our package, and the pause of Kubernetes.

    pod_images.py --verbs3 V --etcd E --pause P --venv VENV --package PACKAGE --dir DIR --root ROOT --python-root ROOT
    pod_images.py --command           the command that makes ROOT, by the Containerfile"""

import argparse
import json
import sys
from pathlib import Path

from container_image import make_image, make_layer, read_recipe

ROOT = Path(__file__).resolve().parents[2]
OURS, ETCD, CLIENT, PAUSE = "registry.example/verbs3", "quay.io/coreos/etcd", "registry.example/client", "registry.example/pause"
PAUSE_NAME = f"{PAUSE}:1"
# boto3, and what it imports.
CLIENT_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "urllib3", "six.py")


def recipe():
    return read_recipe((ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8"), "base")


def make_images(said, folder: Path) -> list[dict]:
    """Each with its archive, repository and digest."""
    base, ours = Path(said.root), recipe()
    program, = ours.copied
    packages = next(Path(said.venv).glob("lib/python3*/site-packages"))
    brought = {f"/opt/client/{name}": packages / name for name in CLIENT_PACKAGES} | {"/opt/client/verbs3": Path(said.package)}
    layers = {
        OURS: [base, make_layer(folder / "verbs3.layer", {program: Path(said.verbs3)})],
        ETCD: [base, make_layer(folder / "etcd.layer", {"/usr/local/bin/etcd": Path(said.etcd)})],
        CLIENT: [Path(said.python_root), make_layer(folder / "client.layer", brought)],
        PAUSE: [make_layer(folder / "pause.layer", {"/pause": Path(said.pause)})],
    }
    configs = {OURS: {"User": ours.user, "Entrypoint": ours.entrypoint}, ETCD: {}, CLIENT: {"User": "9000"}, PAUSE: {"Entrypoint": ["/pause"]}}
    images = []
    for repository, parts in layers.items():
        path = folder / (repository.rpartition("/")[2] + ".tar")
        digest = make_image(path, parts, configs[repository], PAUSE_NAME if repository == PAUSE else "")
        images.append({"path": str(path), "repository": repository, "digest": digest})
    for path in folder.glob("*.layer"):
        path.unlink()
    return images


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", action="store_true")
    for name in ("verbs3", "etcd", "pause", "venv", "package", "dir", "root", "python-root"):
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
