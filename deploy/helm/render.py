#!/usr/bin/env python3
"""Makes deploy/kubernetes from the chart, for who has no Helm: its defaults, a file for each template.

    render.py HELM            writes the files
    render.py HELM --check    says which differ, and exits 1 if there is one

tests/testbed/helm.sh prints the path of a helm."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
KUBERNETES = HERE.parent / "kubernetes"
FILES = ("verbs3.toml", "account.yaml", "etcd.yaml", "coordinators.yaml", "nodes.yaml")
# What is off by default: files of their own, which kustomization.yaml does not name.
EXTRAS = {"webhook.yaml": ("--set", "webhook.enabled=true", "--set", "webhook.tls.certManager=true"),
          "controller.yaml": ("--set", "controller.enabled=true", "--set", "controller.secrets[0].namespace=train",
                              "--set", "controller.secrets[0].names={verbs3-access-key}")}
HEAD = "# Made from deploy/helm/verbs3 by deploy/helm/render.py: change the chart, or its values.\n"
# The version whose schemas tests/deploy holds manifests against.
KUBE_VERSION = "1.34.0"


def template(helm: str, *words: str) -> str:
    """What `helm template` prints with these words besides."""
    command = [helm, "template", "verbs3", str(HERE / "verbs3"), "--kube-version", KUBE_VERSION, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def rendered(helm: str) -> dict[str, str]:
    """Name of each file, and its text."""
    texts = {name: HEAD for name in (*FILES, *EXTRAS)}
    asked = [(None, ())] + list(EXTRAS.items())
    documents = [(only, document) for only, words in asked for document in re.split(r"^---\n", template(helm, "--namespace", "verbs3", *words), flags=re.M)]
    for only, document in documents:
        source = re.match(r"# Source: verbs3/templates/(\S+)\n", document)
        if source and only not in (None, source[1]):
            continue
        if source:
            body = document[source.end() :]
            # A line that ended where a condition did not hold.
            body = re.sub(r"[ \t]+$", "", body, flags=re.M).rstrip("\n") + "\n"
            if source[1] == "config.yaml":
                # As a file, which is easier to write in; kustomization.yaml makes the ConfigMap.
                texts["verbs3.toml"] += yaml.safe_load(body)["data"]["verbs3.toml"].rstrip("\n") + "\n"
                continue
            texts[source[1]] += ("---\n" if texts[source[1]] != HEAD else "") + body
    return texts


def main(helm: str, is_check: bool) -> int:
    wrong = 0
    for name, text in rendered(helm).items():
        path = KUBERNETES / name
        if not is_check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"ERROR: deploy/kubernetes/{name} is not what the chart gives: run deploy/helm/render.py")
            wrong = 1
    return wrong


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], len(sys.argv) == 3))
