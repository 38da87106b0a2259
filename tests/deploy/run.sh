#!/usr/bin/env bash
#! Holds deploy/kubernetes against the API's schema, and starts its pods by the built binary (pods.py), in namespaces of their own.
#
#   run.sh DIR     DIR takes trees and logs; DIR/not-proven what this machine does not allow
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=../testbed/built.sh
. "$ROOT/tests/testbed/built.sh"
[ $# -eq 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
VERBS3=$(binary)
VENV=$("$ROOT/tests/testbed/venv.sh" deploy)
ETCD=$("$ROOT/tests/testbed/etcd.sh")
mkdir -p "$1"; DIR=$(readlink -f "$1")

for manifest in "$ROOT"/deploy/kubernetes/*.yaml; do
  "$VENV/bin/kubernetes-validate" -k 1.34 --strict "$manifest" >"$DIR/validated" 2>&1 || { echo "ERROR: $manifest is no manifest:"; cat "$DIR/validated"; exit 1; }
done

own=(--mount --net --pid --fork --mount-proc --kill-child)
[ "$(id -u)" -eq 0 ] || own+=(--user --map-root-user)
if ! unshare "${own[@]}" ip link set lo up 2>/dev/null; then
  echo "pods of deploy/kubernetes: this machine allows no namespaces (root is needed, or user namespaces)" >"$DIR/not-proven"
  exit 0
fi
[ "$(id -u)" -eq 0 ] || echo "users and groups of pods: their processes ran as one user, since this is not root" >"$DIR/not-proven"
work=$(mktemp -d "$DIR/pods.XXXXXX")
PYTHONDONTWRITEBYTECODE=1 unshare "${own[@]}" "$VENV/bin/python" "$HERE/pods.py" "$VERBS3" "$ETCD" "$work"
