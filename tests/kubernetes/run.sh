#!/usr/bin/env bash
#! The webhook and the controller at a real API server and etcd, by what the chart gives: its configuration of the webhook, its
#! resource, its roles. No kubelet: pods are created, and none runs.
#
#   run.sh APISERVER DIR     DIR takes trees and logs
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=tests/testbed/built.sh
. "$ROOT/tests/testbed/built.sh"
[ $# -eq 2 ] || usage
export PYTHONDONTWRITEBYTECODE=1
VERBS3=$(binary)
VENV=$("$ROOT/tests/testbed/venv.sh" deploy)
ETCD=$("$ROOT/tests/testbed/etcd.sh")
HELM=$("$ROOT/tests/testbed/helm.sh")
mkdir -p "$2"
"$VENV/bin/python" "$HERE/self_service.py" --verbs3 "$VERBS3" --etcd "$ETCD" --helm "$HELM" --apiserver "$1" --dir "$(readlink -f "$2")"
