#!/usr/bin/env bash
#! The webhook and the controller at a real API server and etcd, by what the chart gives: its configuration of the webhook, its
#! resource, its roles. All of deploy/ by a strict dry run. No kubelet: pods are created, and none runs.
#
#   run.sh APISERVER DIR [DEFINITIONS]     DIR takes trees and logs; DIR/not-proven what could not be checked. DEFINITIONS: a
#                                          folder with those of custom resources that crds.sh could not get
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=tests/testbed/built.sh
. "$ROOT/tests/testbed/built.sh"
[ $# -eq 2 ] || [ $# -eq 3 ] || usage
export PYTHONDONTWRITEBYTECODE=1
VERBS3=$(binary)
VENV=$("$ROOT/tests/testbed/venv.sh" deploy)
ETCD=$("$ROOT/tests/testbed/etcd.sh")
HELM=$("$ROOT/tests/testbed/helm.sh")
DEFINITIONS=$("$ROOT/tests/testbed/crds.sh")
# Building it takes minutes: without one, DIR/not-proven says so.
CERT_MANAGER=$("$ROOT/tests/testbed/cert-manager.sh" --cached || true)
mkdir -p "$2"
"$VENV/bin/python" "$HERE/self_service.py" --verbs3 "$VERBS3" --etcd "$ETCD" --helm "$HELM" --apiserver "$1" --dir "$(readlink -f "$2")" \
  --definitions "$DEFINITIONS" ${3:+"$3"} ${CERT_MANAGER:+--cert-manager "$CERT_MANAGER"}
