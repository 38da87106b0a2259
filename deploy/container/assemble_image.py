#!/usr/bin/env python3
"""The image of verbs3: a root file system (root.sh), the binary over it, and how a container of it starts. build.sh runs this.

    assemble_image.py --root LAYER --binary FILE --version VERSION --revision COMMIT --created SECONDS --variant base|tools ARCHIVE

Prints the image's digest."""

import argparse
import os
import tempfile
from pathlib import Path

from oci_archive import ImageContent, write_image, write_layer

PROGRAM = "/usr/local/bin/verbs3"
USER = 9000
# No core dumps: memory holds keys and objects. A limit of 1 and not 0, since the kernel gives the dump to a program that core_pattern
# names whatever the limit is, but for 1.
ENTRYPOINT = ["/usr/bin/prlimit", "--core=1:1", "--", PROGRAM]


def describe(said: argparse.Namespace) -> dict[str, str]:
    """The image's labels."""
    labels = {"title": "verbs3", "version": said.version, "revision": said.revision, "licenses": "Apache-2.0",
              "description": "An S3 endpoint on every GPU node, served from a cluster-wide cache"}
    if said.variant == "tools":
        labels |= {"title": "verbs3-tools", "description": "verbs3, with tools that look for faults of a fabric"}
    # No address is known here: who publishes the sources says it.
    if source := os.environ.get("IMAGE_SOURCE"):
        labels["source"] = source
    return {f"org.opencontainers.image.{name}": value for name, value in labels.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("root", "binary", "version", "revision", "created", "variant"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("archive")
    said = parser.parse_args()
    created, labels = int(said.created), describe(said)
    with tempfile.TemporaryDirectory() as folder:
        program = write_layer(Path(folder) / "program.tar", {PROGRAM: Path(said.binary)}, created)
        partial = Path(f"{said.archive}.partial")
        name = labels["org.opencontainers.image.title"]
        digest = write_image(partial, ImageContent(
            [Path(said.root), program], {"User": str(USER), "Entrypoint": ENTRYPOINT}, labels, created,
            f"localhost/{name}:{said.version}", said.version), compressed=True)
        partial.rename(said.archive)
    print(digest)


if __name__ == "__main__":
    main()
