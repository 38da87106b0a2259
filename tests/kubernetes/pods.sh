#!/usr/bin/env bash
#! The chart and the manifests of deploy/ under real kubelets: a cluster of three nodes on this machine, each in namespaces of its own.
#! By hand alone: building it takes a quarter of an hour of two idle cores once, and a run ten minutes. Needs root and cgroup v1.
#
#   pods.sh DIR [--only chart|manifests|rdma]     DIR takes images, trees and logs
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ROOT=$(readlink -f "$HERE/../..")
# shellcheck source=tests/testbed/built.sh
. "$ROOT/tests/testbed/built.sh"
# shellcheck source=tests/testbed/mirror.sh
. "$ROOT/tests/testbed/mirror.sh"
[ $# -ge 1 ] || usage
mkdir -p "$1"; DIR=$(readlink -f "$1"); shift
[ "$(id -u)" = 0 ] || { echo "ERROR: pods: must run as root: it makes network and mount namespaces" >&2; exit 1; }
[ -d /sys/fs/cgroup/cpuset ] || { echo "ERROR: pods: /sys/fs/cgroup is not of version 1: this stage makes its nodes' cgroups for that alone" >&2; exit 1; }
export PYTHONDONTWRITEBYTECODE=1
VERBS3=$(binary)
# Two at once would have the same cgroups.
exec 7>"${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/pods.lock"
flock -n 7 || { echo "ERROR: pods: another run of it is under way on this machine" >&2; exit 1; }
VENV=$("$ROOT/tests/testbed/venv.sh" deploy)
ETCD=$("$ROOT/tests/testbed/etcd.sh")
HELM=$("$ROOT/tests/testbed/helm.sh")
CONTAINERD=$("$ROOT/tests/testbed/containerd.sh")
KUBERNETES=$("$ROOT/tests/testbed/kubernetes.sh" kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl pause)
PLUGIN=$("$ROOT/tests/testbed/device-plugin.sh")
PROMETHEUS=$("$ROOT/tests/testbed/prometheus.sh")
"$ROOT/tests/testbed/vm.sh" install
COREDNS=$("$ROOT/tests/testbed/coredns.sh")
# What is shipped is what pods run.
IMAGE_FOLDER=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/image
DEBIAN_MIRROR=$(mirror); DEBIAN_MIRROR=${DEBIAN_MIRROR%/debian}
export IMAGE_FOLDER DEBIAN_MIRROR
mkdir -p "$DIR/images"
"$ROOT/deploy/container/build.sh" --binary "$VERBS3" "$DIR/images/verbs3.tar"
BASE=$("$ROOT/deploy/container/root.sh" base "$IMAGE_FOLDER")
PYTHON=$("$ROOT/tests/testbed/debian-root.sh" 'apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*')
"$ROOT/tests/testbed/wheel.sh" "$DIR/wheel"
"$VENV/bin/python" "$HERE/pod_images.py" --ours "$DIR/images/verbs3.tar" --etcd "$ETCD" --pause "$KUBERNETES/pause" --venv "$VENV" --dir "$DIR/images" --package "$DIR/wheel/site/verbs3" --plugin "$PLUGIN" \
  --root "$BASE" --python-root "$PYTHON"

# The nodes' cgroups outlive their processes, which end with the first one of the namespaces below.
# shellcheck disable=SC2329 # by the trap
remove_cgroups() {
  local place
  for place in /sys/fs/cgroup/*/verbs3-pods; do
    if [ -d "$place" ]; then find "$place" -depth -type d -exec rmdir {} + || echo "ERROR: pods: $place is still used" >&2; fi
  done
  rmdir --ignore-fail-on-non-empty /var/lib/cni 2>/dev/null || true
}
trap remove_cgroups EXIT
rm -rf "$DIR/lab"
mkdir -p /var/lib/cni
# Not exec: the trap is this shell's. Whoever kills the shell kills all of it.
setpriv --pdeathsig KILL unshare --mount --uts --net --pid --ipc --fork --mount-proc --kill-child "$VENV/bin/python" "$HERE/pods.py" --verbs3 "$VERBS3" \
  --kubernetes "$KUBERNETES" --containerd "$CONTAINERD" --etcd "$ETCD" --coredns "$COREDNS" --helm "$HELM" --plugin "$PLUGIN" --prometheus "$PROMETHEUS" --dir "$DIR" "$@"
