"""Images as archives in OCI's layout, which `ctr images import` takes: from root file systems, and from the Containerfile without an
engine that builds it."""

import hashlib
import io
import json
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CREATED = "2026-01-01T00:00:00Z"


@dataclass
class Recipe:
    """What one stage of a Containerfile says, as far as images of ours need it."""

    run: list[str] = field(default_factory=list)
    # What is copied from the stage that builds: to where.
    copied: list[str] = field(default_factory=list)
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)


def read_recipe(text: str, stage: str) -> Recipe:
    """The stage of this name. An instruction that is not understood is an error: the image would be another one."""
    body = re.search(rf"^FROM \S+ AS {stage}\n(.*?)(?=^FROM |\Z)", text, re.M | re.S)[1]
    body = re.sub(r"^#.*\n", "", body, flags=re.M)
    recipe = Recipe()
    for line in re.sub(r"\\\n\s*", "", body).splitlines():
        if not line.strip():
            continue
        word, rest = line.split(" ", 1)
        if word == "RUN":
            recipe.run.append(rest)
        elif word == "COPY" and rest.startswith("--from=build "):
            recipe.copied.append(rest.split()[2])
        elif word == "USER":
            recipe.user = rest
        elif word == "ENTRYPOINT":
            recipe.entrypoint = json.loads(rest)
        else:
            raise SystemExit(f"ERROR: {word} of the Containerfile is not understood here: {line}")
    return recipe


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def make_layer(path: Path, files: dict[str, Path]) -> Path:
    """A layer of files and folders, by where they go. As root's, and executable where they are."""
    def as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry

    with tarfile.open(path, "w") as tar:
        for place, source in files.items():
            tar.add(source, place.lstrip("/"), filter=as_root)
    return path


def make_image(path: Path, layers: list[Path], config: dict, name: str = "") -> str:
    """Writes the archive; the image's digest. NAME: what it is called besides."""
    digests = [digest_of(layer) for layer in layers]
    blobs = dict(zip(digests, layers))

    def blob(kind: str, document: dict) -> dict:
        text = json.dumps(document).encode()
        digest = "sha256:" + hashlib.sha256(text).hexdigest()
        blobs[digest] = text
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(text)}

    described = blob("config.v1+json", {
        "architecture": "amd64", "os": "linux", "created": CREATED, "config": {"Env": [PATH], **config},
        "rootfs": {"type": "layers", "diff_ids": digests}, "history": [{"created": CREATED} for _ in layers]})
    parts = [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}
             for digest, layer in zip(digests, layers)]
    manifest = blob("manifest.v1+json", {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": described, "layers": parts})
    if name:
        manifest["annotations"] = {"io.containerd.image.name": name}
    index = {"schemaVersion": 2, "manifests": [manifest]}
    with tarfile.open(path, "w") as tar:
        for place, content in [("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), ("index.json", json.dumps(index).encode())]:
            add(tar, place, content)
        for digest, content in blobs.items():
            add(tar, "blobs/" + digest.replace(":", "/"), content)
    return manifest["digest"]


def add(tar: tarfile.TarFile, place: str, content) -> None:
    if isinstance(content, Path):
        tar.add(content, place)
        return
    entry = tarfile.TarInfo(place)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
