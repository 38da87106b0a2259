#!/usr/bin/env bash
# Builds the RDMA shared device plugin, of one version and one checksum, from the Go module proxy; prints the folder that has the
# program and its `daemonset.yaml`, as upstream ships it.
set -euo pipefail
module=github.com/Mellanox/k8s-rdma-shared-dev-plugin version=v1.5.3 sum=h1:sjF+BpNYOYHRGFbL8luUtSUMmZLFqUlUSS/bzyRWjs8=
# shellcheck source=tests/testbed/go.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/go.sh"
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/rdma-device-plugin-$version"
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$folder/k8s-rdma-shared-dp" ]; then
    (
        find_go device-plugin "$folder"
        told=$(cd / && go mod download -json "$module@$version")
        found=$(sed -n 's/^\t"Sum": "\(.*\)",$/\1/p' <<<"$told")
        [ "$found" = "$sum" ] || { echo "device-plugin: $module@$version has the checksum $found, and not $sum" >&2; exit 1; }
        cd "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$told")"
        echo "device-plugin: building $module@$version"
        # Nothing is written into the module's folder: what it needs stands in its go.sum.
        CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" nice -n 15 go build -p 2 -trimpath -ldflags "-s -w" -o "$folder/built" ./cmd/k8s-rdma-shared-dp
        cp deployment/k8s/base/daemonset.yaml "$folder/daemonset.yaml"
        mv "$folder/built" "$folder/k8s-rdma-shared-dp"
    ) >&2
fi
echo "$folder"
