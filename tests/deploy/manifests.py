"""Reads deploy/kubernetes as a kubelet would: for each container of our image its command line, its environment, what is mounted
into it, as whom it runs, and what it may not do. ConfigMaps are those of kustomization.yaml, Secrets those of the `kubectl
create` commands of the documents. Starts nothing; a reference to something that nobody makes is an error here, as it is there."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from verdict import Broken

IMAGE = "registry.example/verbs3@"
# Keys of an object, by (kind, name).
Objects = dict[tuple[str, str], dict[str, str]]
# Of a gateway.
ADMIN_PORT = 9001


@dataclass
class Mount:
    path: str
    # Of a ConfigMap or Secret: name → content.
    files: dict[str, str] = field(default_factory=dict)
    mode: int = 0o644
    # Of a hostPath: shared by all pods of the node.
    host: str | None = None
    is_read_only: bool = False


@dataclass
class Container:
    manifest: str
    workload: str
    name: str
    is_init: bool
    # The program, and what it is started with.
    program: list[str]
    words: list[str]
    env: dict[str, str]
    mounts: list[Mount]
    user: int
    group: int
    fs_group: int | None
    # What `securityContext` leaves.
    has_read_only_root: bool
    has_seccomp: bool
    may_gain_privileges: bool
    capabilities: list[str]
    # preStop, and port and path of the readiness probe.
    stop: list[str] | None
    ready: tuple[int, str] | None

    def __str__(self) -> str:
        return f"{self.manifest}: {self.workload}/{self.name}"


def objects(text: str, folder: Path, given: dict[str, str]) -> Objects:
    """What the `kubectl create` commands in TEXT make. GIVEN: contents of files and literals that a person brings along."""
    made: Objects = {}
    lines = re.sub(r"\\\n#? *", "", text).splitlines()
    for line in (line.lstrip("# ") for line in lines):
        # A dry run changes one that is there, later.
        if not (line.startswith("kubectl") and " create " in line) or "--dry-run" in line:
            continue
        words = shlex.split(line, comments=True)
        kind, name = words[words.index("create") + 1 :][:2]
        if kind == "secret":
            name = words[words.index("generic") + 1]
        if kind not in ("secret", "configmap"):
            continue
        entries = made.setdefault((kind, name), {})
        for word in words:
            if word.startswith("--from-literal="):
                key, value = word.removeprefix("--from-literal=").split("=", 1)
                entries[key] = given.get(key, value)
            elif word.startswith("--from-file="):
                key, _, path = word.removeprefix("--from-file=").rpartition("=")
                entries[key or path] = given[path] if path in given else (folder / path).read_text(encoding="utf-8")
    return made


def readiness_of(container: dict) -> dict | None:
    """Where a kubelet asks. By a socket of the pod (`verbs3 probe`), the same is told at the admin address."""
    probe = container.get("readinessProbe", {})
    return {"port": ADMIN_PORT, "path": "/readyz"} if "probe" in probe.get("exec", {}).get("command", []) else probe.get("httpGet")


def containers(path: Path, documents: list[dict], made: Objects, fields: dict[str, str], user: int, entrypoint: list[str]) -> list[Container]:
    """FIELDS: what the downward API says, by fieldPath. USER, ENTRYPOINT: the image's."""
    found = []
    for document in documents:
        template = pod_of(document)
        if not template:
            continue
        pod = template.get("securityContext", {})
        volumes = {volume["name"]: volume for volume in template.get("volumes", [])}
        for is_init, container in [(True, one) for one in template.get("initContainers", [])] + [(False, one) for one in template["containers"]]:
            if not container["image"].startswith(IMAGE):
                continue
            env = environment(container, made, fields)
            program = container.get("command", entrypoint)
            words = [expanded(word, env) for word in program + container.get("args", [])]
            security = pod | container.get("securityContext", {})
            probe = readiness_of(container)
            found.append(Container(
                manifest=path.name,
                workload=document["metadata"]["name"],
                name=container["name"],
                is_init=is_init,
                program=program,
                words=words,
                env=env,
                mounts=[mounted(mount, volumes, made) for mount in container.get("volumeMounts", [])],
                user=security.get("runAsUser", user),
                group=security.get("runAsGroup", 0),
                fs_group=pod.get("fsGroup"),
                has_read_only_root=security.get("readOnlyRootFilesystem", False),
                has_seccomp=security.get("seccompProfile", {}).get("type") == "RuntimeDefault",
                may_gain_privileges=security.get("allowPrivilegeEscalation", True),
                capabilities=capabilities(security.get("capabilities", {})),
                stop=container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command"),
                ready=(probe["port"], probe["path"]) if probe else None,
            ))
    return found


def pod_of(document: dict) -> dict | None:
    """The pod that a document makes, or makes more of."""
    return document.get("spec", {}).get("template", {}).get("spec")


def config_maps(folder: Path) -> Objects:
    """What the kustomization of a folder makes."""
    document, = read(folder / "kustomization.yaml")
    return {("configmap", one["name"]): {name: (folder / name).read_text(encoding="utf-8") for name in one["files"]}
            for one in document["configMapGenerator"]}


# What container runtimes leave to root, unless told otherwise.
USUAL = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW",
         "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP"]


def capabilities(said: dict) -> list[str]:
    kept = [] if "ALL" in said.get("drop", []) else [name for name in USUAL if name not in said.get("drop", [])]
    return kept + said.get("add", [])


def of(made: Objects, kind: str, name: str) -> dict[str, str]:
    if (kind, name) not in made:
        raise Broken(f"{kind} {name} is made by no command of the documents")
    return made[kind, name]


def environment(container: dict, made: Objects, fields: dict[str, str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        (kind, reference), = source.items()
        env |= of(made, {"secretRef": "secret", "configMapRef": "configmap"}[kind], reference["name"])
    for variable in container.get("env", []):
        if "value" in variable:
            env[variable["name"]] = expanded(variable["value"], env)
            continue
        (kind, reference), = variable["valueFrom"].items()
        if kind == "fieldRef":
            env[variable["name"]] = fields[reference["fieldPath"]]
        else:
            entries = of(made, {"secretKeyRef": "secret", "configMapKeyRef": "configmap"}[kind], reference["name"])
            if reference["key"] not in entries:
                raise Broken(f"{reference['name']} has no key {reference['key']}")
            env[variable["name"]] = entries[reference["key"]]
    return env


def expanded(text: str, env: dict[str, str]) -> str:
    """$(NAME), where NAME is known."""
    return re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", lambda match: env.get(match[1], match[0]), text)


def mounted(mount: dict, volumes: dict[str, dict], made: Objects) -> Mount:
    if mount["name"] not in volumes:
        raise Broken(f"there is no volume {mount['name']}")
    volume, path, is_read_only = volumes[mount["name"]], mount["mountPath"], mount.get("readOnly", False)
    if "hostPath" in volume:
        return Mount(path, host=volume["hostPath"]["path"], is_read_only=is_read_only)
    if "emptyDir" in volume:
        return Mount(path, is_read_only=is_read_only)
    # These are never written to, whatever the mount says.
    if "projected" in volume:
        files: dict[str, str] = {}
        for source in volume["projected"]["sources"]:
            (kind, reference), = source.items()
            files |= chosen(made, "secret" if kind == "secret" else "configmap", reference["name"], reference)
        return Mount(path, files=files, mode=volume["projected"].get("defaultMode", 0o644), is_read_only=True)
    kind, key = ("secret", "secretName") if "secret" in volume else ("configmap", "name")
    source = volume["secret" if kind == "secret" else "configMap"]
    return Mount(path, files=chosen(made, kind, source[key], source), mode=source.get("defaultMode", 0o644), is_read_only=True)


def chosen(made: Objects, kind: str, name: str, source: dict) -> dict[str, str]:
    """The files of an object: those of `items`, or all."""
    entries = of(made, kind, name)
    if "items" not in source:
        return entries
    absent = [item["key"] for item in source["items"] if item["key"] not in entries]
    if absent:
        raise Broken(f"{name} has no key {absent[0]}")
    return {item["path"]: entries[item["key"]] for item in source["items"]}


def read(path: Path) -> list[dict]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
