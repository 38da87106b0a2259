"""Everything that deploy/ gives Kubernetes, at a real API server that has the definitions of others' resources: each document of each
rendering of the chart (tests/deploy/charts.py) and of deploy/kubernetes, by a server-side dry run that lets no unknown field pass.
Nothing is kept, and nothing acts by it."""

import copy
import re
import sys
import urllib.parse
from pathlib import Path

import yaml

from api_server import HELD, ApiServer, hold, until

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/deploy"))
import charts  # noqa: E402 # where it is

# Kinds of the network operator, SR-IOV, Multus and NFD, whose definitions crds.sh could not get.
NOWHERE = {"NicClusterPolicy", "HostDeviceNetwork", "MacvlanNetwork", "SriovNetworkNodePolicy", "SriovNetwork", "SriovIBNetwork", "NetworkAttachmentDefinition", "NodeFeatureRule"}
# What holds names of anybody's choice.
FREE = {"labels", "matchLabels", "annotations", "nodeSelector", "matchExpressions"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPLY = "?fieldManager=verbs3-tests&force=true&dryRun=All&fieldValidation=Strict"


def divided(text: str) -> list[str]:
    """The documents of a text, as they stand there: a key that is there twice is one no more once it is read."""
    return [one for one in re.split(r"^---$", text, flags=re.M) if re.sub(r"^\s*#.*$", "", one, flags=re.M).strip()]


def define(api: ApiServer, folders: list[Path]) -> None:
    """Has the API server learn the definitions of folders."""
    names = []
    for text in (one for folder in folders for path in sorted(folder.glob("*.yaml")) for one in divided(path.read_text(encoding="utf-8"))):
        made = api.ask("POST", DEFINITIONS, text, kind="application/yaml")
        hold("a definition of others is taken", made.status == 201, made)
        names.append(made["metadata"]["name"])

    def is_established(name: str) -> bool:
        conditions = api.ask("GET", f"{DEFINITIONS}/{name}").get("status", {}).get("conditions", [])
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
    until(f"these are established: {names}", lambda: all(is_established(name) for name in names))


def rendered(helm: str) -> dict[str, str]:
    """Every text that is given to Kubernetes, by its name."""
    texts = {name: charts.render.template(helm, *words, "--namespace", "verbs3", "--set", f"image.digest={charts.DIGEST}") for name, words, _ in charts.all_variants()}
    texts["everything that is watched"] = charts.render.template(helm, *charts.WATCHED, "--namespace", "verbs3")
    return texts | {str(path.relative_to(charts.KUBERNETES)): path.read_text(encoding="utf-8")
                    for path in sorted(charts.KUBERNETES.rglob("*.yaml")) if path.name != "kustomization.yaml"}


class Resources:
    """Where an API server has which kind."""

    def __init__(self, api: ApiServer):
        self.api, self.places, self.namespaces = api, {}, set()

    def place(self, document: dict) -> str:
        """The path of a document; "": the kind is not known there."""
        version, kind = document["apiVersion"], document["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self.places:
            found = [one for one in self.api.ask("GET", root).get("resources", []) if one["kind"] == kind and "/" not in one["name"]]
            self.places[version, kind] = found[0] if found else None
        known = self.places[version, kind]
        if not known:
            return ""
        namespace = document["metadata"].get("namespace", "verbs3") if known["namespaced"] else ""
        self.have(namespace)
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{middle}/{known['name']}/{urllib.parse.quote(document['metadata']['name'])}"

    def have(self, namespace: str) -> None:
        if namespace and namespace not in self.namespaces:
            self.namespaces.add(namespace)
            made = self.api.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            hold(f"there is a namespace {namespace}", made.status in (201, 409), made)

    def refusal(self, path: str, document) -> tuple[str, list]:
        """Why the API server does not take a document ("": it does), and what it warns of."""
        answer = self.api.ask("PATCH", path + APPLY, document, kind="application/apply-patch+yaml")
        return "" if answer.status in (200, 201) else f"{answer.status}: {answer.get('message', answer)}", answer.warnings


def misspellings(document: dict):
    """A document with one name in it misspelt, for every name that is not of anybody's choice; with the name, and where it is."""
    seen = set()

    def paths(value, path: tuple):
        if isinstance(value, list):
            for index, one in enumerate(value):
                yield from paths(one, (*path, index))
        elif isinstance(value, dict):
            for name, one in value.items():
                if not path or path[-1] not in FREE:
                    yield (*path, name)
                yield from paths(one, (*path, name))

    for path in paths(document["spec"], ("spec",)):
        kinds = tuple("" if isinstance(step, int) else step for step in path)
        if kinds in seen:
            continue
        seen.add(kinds)
        changed = copy.deepcopy(document)
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[f"{path[-1]}x"] = place.pop(path[-1])
        yield path[-1], ".".join(str(step) for step in path), changed


def hold_resources(api: ApiServer, helm: str) -> list[str]:
    """Kinds of deploy/ that nothing here defines."""
    resources, tried, wrong = Resources(api), set(), []
    undefined, others, misspelt = set(), {}, 0
    texts = rendered(helm)
    for name, text in texts.items():
        for one in divided(text):
            document = yaml.load(one, yaml.CSafeLoader)
            kind, path = document["kind"], resources.place(document)
            if not path:
                undefined.add(kind)
                continue
            body = one.strip()
            if (path, body) in tried:
                continue
            tried.add((path, body))
            said, warnings = resources.refusal(path, body)
            wrong += [f"{name}: {kind} {document['metadata']['name']}: {what}" for what in [said, *warnings] if what]
            if kind not in charts.OTHERS or said:
                continue
            others[kind] = others.get(kind, 0) + 1
            for right, where, changed in misspellings(document):
                misspelt += 1
                # Where it is the key of a list's elements, it is told that these have none.
                if right not in resources.refusal(path, changed)[0]:
                    wrong.append(f"{name}: {kind} {document['metadata']['name']}: {where} is taken although it is misspelt")
    hold("the API server takes all of deploy/ by a strict dry run", not wrong, "\n".join(wrong))
    hold("no kind is undefined but those whose definitions could not be had", undefined <= NOWHERE, sorted(undefined - NOWHERE))
    expected = {"PodMonitor", "PrometheusRule", "Certificate", "Issuer", "Preload"}
    hold("resources of others are among them", expected <= set(others), others)
    named = re.search(r"kubectl get (\w+)\.whereabouts\.cni\.cncf\.io", (ROOT / "deploy/kubernetes/rdma/README.md").read_text(encoding="utf-8"))
    found = api.ask("GET", f"/apis/whereabouts.cni.cncf.io/v1alpha1/{named[1] if named else 'none'}")
    hold("what deploy/kubernetes/rdma lists of whereabouts is a resource of its", found.status == 200, found)
    twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: twice }\ndata: { a: one, a: two }\n"
    said, _ = resources.refusal("/api/v1/namespaces/verbs3/configmaps/twice", twice)
    hold("a key that is there twice is refused", "already" in said, said)
    HELD.append(f"{misspelt} misspelt names are refused")
    print(f"kubernetes: {len(tried)} documents of {len(texts)} texts taken by a strict dry run, "
          f"of others' kinds {', '.join(f'{count} {kind}' for kind, count in sorted(others.items()))}; {misspelt} misspelt names refused")
    return sorted(undefined)
