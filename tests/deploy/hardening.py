"""What every pod of ours has to keep: told of manifests as they are read, by the words of deploy/README.md, "Hardening"."""

import copy
import re

from manifests import pod_of

# Beyond none: the init container hands folders of the host to the pod's user; root may lock memory where a value asks for it.
ALLOWED = {True: {"CHOWN"}, False: {"IPC_LOCK"}}
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def hardening(document: dict) -> list[str]:
    """What of a document's pod is not hardened."""
    pod = pod_of(document)
    if not pod:
        return []
    wrong = []
    security = pod.get("securityContext", {})
    if pod.get("automountServiceAccountToken") is not False:
        wrong.append("the pod has a token of Kubernetes")
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        wrong.append("the pod has no seccomp profile")
    for volume in pod.get("volumes", []):
        source = volume.get("secret") or volume.get("projected")
        if source and source.get("defaultMode") != 0o440:
            wrong.append(f"volume {volume['name']} is readable to everybody")
    for name in ("hostPID", "hostIPC", "shareProcessNamespace"):
        if pod.get(name):
            wrong.append(f"the pod has {name}")
    for is_init, container in [(True, one) for one in pod.get("initContainers", [])] + [(False, one) for one in pod["containers"]]:
        own = security | container.get("securityContext", {})
        added = set(own.get("capabilities", {}).get("add", []))
        found = [
            (own.get("allowPrivilegeEscalation") is not False, "may gain privileges"),
            (own.get("readOnlyRootFilesystem") is not True, "may write to its root"),
            (own.get("privileged", False), "is privileged"),
            (own.get("capabilities", {}).get("drop") != ["ALL"], "keeps capabilities"),
            (not added <= ALLOWED[is_init], f"has capabilities {sorted(added)}"),
            (own.get("runAsNonRoot") is not True and not added, "may be root"),
            (not DIGEST.search(container["image"]), f"has an image without a digest: {container['image']}"),
            (bool(container.get("envFrom")) or any("secretKeyRef" in one.get("valueFrom", {}) for one in container.get("env", [])),
             "has secrets in its environment"),
        ]
        wrong += [f"{container['name']} {what}" for is_so, what in found if is_so]
    return [f"{document['kind']} {document['metadata']['name']}: {what}" for what in wrong]


def altered(document: dict, path: list, value) -> dict:
    changed = copy.deepcopy(document)
    place = changed["spec"]["template"]["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


# A change for each promise: one that goes unnoticed shows that nothing is checked.
CHANGES = [
    (["automountServiceAccountToken"], True, "token"),
    (["securityContext", "seccompProfile"], {"type": "Unconfined"}, "seccomp"),
    (["securityContext", "runAsNonRoot"], False, "may be root"),
    (["hostPID"], True, "hostPID"),
    (["volumes", 1, "projected", "defaultMode"], 0o444, "readable to everybody"),
    (["containers", 0, "securityContext", "allowPrivilegeEscalation"], True, "gain privileges"),
    (["containers", 0, "securityContext", "readOnlyRootFilesystem"], False, "write to its root"),
    (["containers", 0, "securityContext", "privileged"], True, "privileged"),
    (["containers", 0, "securityContext", "capabilities"], {}, "keeps capabilities"),
    (["containers", 0, "securityContext", "capabilities"], {"drop": ["ALL"], "add": ["NET_RAW"]}, "NET_RAW"),
    (["containers", 0, "image"], "registry.example/verbs3:1", "without a digest"),
    (["containers", 0, "envFrom"], [{"secretRef": {"name": "verbs3-store"}}], "secrets in its environment"),
]


def unnoticed(document: dict) -> list[str]:
    """Changes of a hardened document that `hardening` does not tell."""
    return [f"hardening does not notice {path} = {value}" for path, value, what in CHANGES
            if not any(what in told for told in hardening(altered(document, path, value)))]
