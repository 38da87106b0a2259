#!/usr/bin/env bash
#! Holds deploy/ against what reads it: the chart and the manifests against the API's schema (charts.py), the pods and the units against
#! the built binary, which is started by them (pods.py, certified_pods.py, units.py), alerts and dashboard
#! against its metrics (alerts.py), files that a person brings along against the binary (brought_files.py), the host's scripts against a made-up host (host.py, host_scripts.py), the runbooks' commands against a host laid out as deploy/README.md says (runbook_commands.py), the Debian package where it is installed (package.py), the image where podman starts it (image_build.py, image_packages.py); all in namespaces of their own.
#
#   run.sh DIR     DIR takes trees and logs; DIR/not-proven what this machine does not allow
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=tests/testbed/built.sh
. "$ROOT/tests/testbed/built.sh"
[ $# -eq 1 ] || usage
export PYTHONDONTWRITEBYTECODE=1
VERBS3=$(binary)
VENV=$("$ROOT/tests/testbed/venv.sh" deploy)
ETCD=$("$ROOT/tests/testbed/etcd.sh")
mkdir -p "$1"; DIR=$(readlink -f "$1")
jobs=
not_proven() { echo "$*" >>"$DIR/not-proven"; }

"$VENV/bin/python" "$HERE/static.py" "$DIR"
if HELM=$("$ROOT/tests/testbed/helm.sh"); then
  mkdir -p "$DIR/charts"
  "$VENV/bin/python" "$HERE/charts.py" "$HELM" "$VENV/bin/kubernetes-validate" "$DIR/charts"
  jobs=$DIR/charts/jobs.yaml
  "$VENV/bin/python" "$HERE/brought_files.py" "$VERBS3" "$HELM" "$(mktemp -d "$DIR/brought.XXXXXX")"
else
  not_proven "the chart: no helm could be built here"
fi

own=(--mount --net --pid --fork --mount-proc --kill-child)
[ "$(id -u)" -eq 0 ] || own+=(--user --map-root-user)
if ! unshare "${own[@]}" ip link set lo up 2>/dev/null; then
  not_proven "pods and units of deploy: this machine allows no namespaces (root is needed, or user namespaces)"
  exit 0
fi
[ "$(id -u)" -eq 0 ] || not_proven "users and groups of pods: their processes ran as one user, since this is not root"
work=$(mktemp -d "$DIR/pods.XXXXXX")
unshare "${own[@]}" "$VENV/bin/python" "$HERE/pods.py" "$VERBS3" "$ETCD" "$work" ${jobs:+"$jobs"}
[ -z "${HELM:-}" ] || unshare "${own[@]}" "$VENV/bin/python" "$HERE/certified_pods.py" "$VERBS3" "$ETCD" "$HELM" "$(mktemp -d "$DIR/certified.XXXXXX")"
mkdir -p "$DIR/package"
"$VENV/bin/python" "$HERE/package.py" "$VERBS3" "$DIR/package"
[ ! -e "$DIR/package/not-proven" ] || not_proven "$(cat "$DIR/package/not-proven")"
mkdir -p "$DIR/image" "$DIR/image-packages"
"$VENV/bin/python" "$HERE/image_packages.py" "$DIR/image-packages"
"$VENV/bin/python" "$HERE/image_build.py" "$VERBS3" "$DIR/image"
[ ! -e "$DIR/image/not-proven" ] || not_proven "$(cat "$DIR/image/not-proven")"
unshare "${own[@]}" "$VENV/bin/python" "$HERE/host.py" "$(mktemp -d "$DIR/host.XXXXXX")"
mkdir -p "$DIR/host-scripts"
"$VENV/bin/python" "$HERE/host_scripts.py" "$VERBS3" "$DIR/host-scripts"
unshare "${own[@]}" "$VENV/bin/python" "$HERE/runbook_commands.py" "$VERBS3" "$ETCD" "$(mktemp -d "$DIR/runbooks.XXXXXX")"
PROMETHEUS=$("$ROOT/tests/testbed/prometheus.sh")
# An API server takes minutes to build: alerts of webhook and controller are tried where it was built before.
api_server=$("$ROOT/tests/testbed/kubernetes.sh" --cached kube-apiserver)/kube-apiserver || api_server=
"$ROOT/tests/fake-verbs/build.sh" "$DIR/fake-verbs"
alerts=$(mktemp -d "$DIR/alerts.XXXXXX")
unshare "${own[@]}" "$VENV/bin/python" "$HERE/alerts.py" "$VERBS3" "$PROMETHEUS" "$ETCD" "$DIR/fake-verbs" "$alerts" ${api_server:+"$api_server"}
[ ! -e "$alerts/not-proven" ] || cat "$alerts/not-proven" >>"$DIR/not-proven"
if [ "$(id -u)" -eq 0 ] && [ -x /lib/systemd/systemd ]; then
  "$VENV/bin/python" "$HERE/units.py" "$VERBS3" "$ETCD" "$(mktemp -d "$DIR/units.XXXXXX")"
else
  not_proven "the units of deploy/systemd: no systemd is here, or this is not root"
fi
