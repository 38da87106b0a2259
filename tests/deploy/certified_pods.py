#!/usr/bin/env python3
"""Starts the pods of the chart with everything that tls and console of its values bring: HTTPS at the gateway, certificates between
coordinator, worker and gateway, the console's users. What it starts them with is of pods.py and brought_files.py.

    certified_pods.py VERBS3 ETCD HELM DIR      in namespaces of its own (run.sh makes them)

Prints what is wrong and exits 1."""

import os
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from brought_files import CLUSTER, NODE, Authority, chart, made_by, worker_files
from manifests import objects
from pods import KUBERNETES, ROOT, Container, Node, checked, containers_here, put_and_get, role, surroundings
from verdict import Broken, judge

GATEWAY, COORDINATOR = "127.0.0.1:9000", "localhost:9500"
CONFIG = ["--config", "/etc/verbs3/verbs3.toml"]


def fill_host(node: Node, authority: Authority, group: int) -> None:
    """The folder of the node, by the commands of deploy/README.md."""
    folder = node.folder / "host/etc/verbs3-cluster"
    folder.mkdir(parents=True)
    for name, content in worker_files(authority).items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o640)
    folder.chmod(0o750)
    for path in (folder, *folder.iterdir()) if node.owned else ():
        os.chown(path, 0, group)


def led_to(url: str, authority: Path | None = None) -> str | None:
    """Where a browser is led to, or the status that it is refused with; None: no answer of HTTP."""
    trust = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
            return answer.geturl()
    except urllib.error.HTTPError as error:
        return f"{error.code}"
    except (OSError, HTTPException):
        return None


def used(node: Node, by_role: dict[str, Container], authority: Path) -> list[str]:
    """What is let in, and what is not."""
    put_and_get(f"https://{GATEWAY}", authority)
    wrong = []
    place = led_to(f"https://{COORDINATOR}/console", authority)
    if place != f"https://{COORDINATOR}/console/sign-in":
        wrong.append(f"the console leads to {place}")
    for url in (f"http://{GATEWAY}/demo/pods", f"http://{COORDINATOR}/console/sign-in"):
        place = led_to(url)
        if place is not None:
            wrong.append(f"{url} is answered without TLS: {place}")
    # By the worker's own certificate. It is the only worker, and the coordinators say so.
    worker = by_role["worker"]
    status, said = node.run(worker, worker.stop)
    if status != 1 or "no other worker is there to take them" not in said:
        wrong.append(f"preStop of the worker: {status}: {said}")
    status, said = node.run(worker, ["verbs3", "worker", "drain", "another", *CONFIG])
    if status != 1 or f"worker/{NODE} may not speak as worker another" not in said:
        wrong.append(f"drain of another worker: {status}: {said}")
    status, said = node.run(by_role["coordinator"], ["verbs3", "status", *CONFIG])
    if "coordinator/coordinators may not ask cluster" not in said:
        wrong.append(f"status by a coordinator's certificate: {status}: {said}")
    return wrong


def main(verbs3: Path, etcd: Path, helm: Path, folder: Path) -> list[str]:
    wrong = []
    with surroundings(verbs3, etcd, folder) as given:
        authority, documents = Authority(folder / "authority"), chart(helm)
        made = objects((ROOT / "deploy/README.md").read_text(encoding="utf-8"), KUBERNETES, given) | made_by(documents, authority, verbs3)
        found = containers_here(Path("chart"), documents, made)
        (folder / "cluster").mkdir()
        node = Node(verbs3, folder / "cluster")
        by_role = {role(one)[0]: one for one in found if not one.is_init}
        fill_host(node, authority, by_role["worker"].fs_group)
        for container in found:
            # Its words hand folders to other users, of whom there are none without root.
            status, said = (node.run(container, container.words) if node.owned else (0, "")) if container.is_init else checked(node, container)
            if status != 0:
                wrong.append(f"{container}: {status}: {said}")
        print(f"certified_pods: starting coordinator, worker, gateway of {CLUSTER}")
        try:
            for name in ("coordinator", "worker", "gateway"):
                node.serve(by_role[name])
            wrong += used(node, by_role, folder / "authority/ca.crt")
        except Broken as error:
            wrong.append(f"{error}")
        finally:
            wrong += node.end()
    return wrong


if __name__ == "__main__":
    judge(main, __doc__, 4)
