"""Owns archives in OCI's image layout, which podman, skopeo, ctr and docker read: the same layers and configuration give the same
bytes. Knows nothing of what is in them."""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

MEDIA = "application/vnd.oci.image"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class ImageContent:
    """What an image is made of. `layers` are tar files; `config` is what a container starts with, by OCI's names."""

    layers: list[Path]
    config: dict
    labels: dict[str, str] = field(default_factory=dict)
    # Seconds since 1970, in place of when it was written.
    created: int = 0
    # How containerd calls it, and its tag for others.
    name: str = ""
    tag: str = ""


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def write_layer(path: Path, files: dict[str, Path], modified: int = 0) -> Path:
    """A layer of files and folders, by where they go. As root's, and executable where they are."""
    def as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.mtime = modified
        entry.uname = entry.gname = "root"
        if entry.isreg():
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for place, source in sorted(files.items()):
            tar.add(source, place.lstrip("/"), filter=as_root)
    return path


def compress(layer: Path) -> Path:
    """Beside the layer. By GNU's gzip, whose bytes do not depend on which zlib is here; once for each layer."""
    packed = layer.with_name(layer.name + ".gz")
    if not packed.exists():
        partial = packed.with_name(f"{packed.name}.{os.getpid()}")
        with layer.open("rb") as source, partial.open("wb") as target:
            subprocess.run(["gzip", "--no-name", "-6"], stdin=source, stdout=target, check=True)
        partial.rename(packed)
    return packed


def write_image(path: Path, content: ImageContent, compressed: bool = False) -> str:
    """Writes the archive; the image's digest."""
    packed = [compress(layer) if compressed else layer for layer in content.layers]
    digests = [digest_of(layer) for layer in packed]
    blobs: dict[str, Path | bytes] = dict(zip(digests, packed, strict=True))
    moment = datetime.fromtimestamp(content.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def blob(kind: str, document: dict) -> dict:
        text = json.dumps(document, sort_keys=True).encode()
        digest = "sha256:" + hashlib.sha256(text).hexdigest()
        blobs[digest] = text
        return {"mediaType": f"{MEDIA}.{kind}", "digest": digest, "size": len(text)}

    labels = {"Labels": content.labels} if content.labels else {}
    described = blob("config.v1+json", {
        "architecture": "amd64", "os": "linux", "created": moment, "config": {"Env": [PATH], **labels, **content.config},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in content.layers]},
        "history": [{"created": moment} for _ in content.layers]})
    kind = "layer.v1.tar+gzip" if compressed else "layer.v1.tar"
    parts = [{"mediaType": f"{MEDIA}.{kind}", "digest": digest, "size": layer.stat().st_size} for digest, layer in zip(digests, packed, strict=True)]
    manifest = blob("manifest.v1+json", {"schemaVersion": 2, "mediaType": f"{MEDIA}.manifest.v1+json", "config": described, "layers": parts}
                    | ({"annotations": content.labels} if content.labels else {}))
    called = {"io.containerd.image.name": content.name, "org.opencontainers.image.ref.name": content.tag}
    if found := {name: value for name, value in called.items() if value}:
        manifest = manifest | {"annotations": found}
    index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [manifest]}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for place, written in [("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), ("index.json", json.dumps(index, sort_keys=True).encode()),
                               *sorted(("blobs/" + digest.replace(":", "/"), written) for digest, written in blobs.items())]:
            add(tar, place, written)
    return manifest["digest"]


def add(tar: tarfile.TarFile, place: str, content: Path | bytes) -> None:
    entry = tarfile.TarInfo(place)
    entry.mode = 0o644
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as source:
        entry.size = len(content) if isinstance(content, bytes) else content.stat().st_size
        tar.addfile(entry, source)
