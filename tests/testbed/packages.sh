#!/usr/bin/env bash
# Installs the Debian packages that a build and the tests need, if they are missing.
#
#   packages.sh [build]     only what a build needs with `build`, everything without
set -euo pipefail

build=(cmake g++ make pkg-config libclang1-14 libclang-common-14-dev libnl-3-dev libnl-route-3-dev
    protobuf-compiler libprotobuf-dev)
tests=(python3-venv mmdebstrap qemu-system-x86 qemu-user busybox-static cpio kmod gcc-12 xz-utils iproute2 rdma-core ibverbs-utils
    ibverbs-providers rdmacm-utils perftest procps curl openssl rclone s3fs faketime shellcheck nftables
    chromium-headless-shell fonts-dejavu-core podman crun)
# Debian's npm brings hundreds of packages along: only where there is none of another origin.
command -v node >/dev/null || tests+=(nodejs)
command -v npm >/dev/null || tests+=(npm)
wanted=("${build[@]}"); [ "${1:-}" = build ] || wanted+=("${tests[@]}")

missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    echo "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
[ "${1:-}" = build ] || { "$(dirname "$0")/etcd.sh" && "$(dirname "$0")/prometheus.sh"; } >/dev/null
