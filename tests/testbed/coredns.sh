#!/usr/bin/env bash
# Builds the CoreDNS of tests/kubernetes/dns from the Go module proxy, by the checksums of its go.sum; prints the path of the program.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=tests/testbed/go.sh
. "$HERE/go.sh"
source="$HERE/../kubernetes/dns"
folder="${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/coredns-$(cat "$source"/go.* "$source"/main.go | sha256sum | cut -c1-12)"
mkdir -p "$folder"
exec 8>"$folder/lock"; flock 8
if [ ! -x "$folder/coredns" ]; then
    find_go coredns "$folder"
    echo "coredns: building it" >&2
    (cd "$source" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false nice -n 15 go build -p 2 -trimpath -ldflags "-s -w" -o "$folder/built" .) >&2
    mv "$folder/built" "$folder/coredns"
fi
echo "$folder/coredns"
